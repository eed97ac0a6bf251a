"""Settings of all tests."""

import signal
import threading

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# A shell starts background jobs with interrupts ignored, and the processes that tests start would
# inherit that; some of these are interrupted on purpose.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)
