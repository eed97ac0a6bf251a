"""Keep the compiler of torch off the recorder.

TorchDynamo compiles the Python frames that run below a compiled function. Where such a function
leaves its graph, as at ``loss.backward()``, these are also the frames of the probe and the
recorder: it compiles them again and again, and the compiled code takes constants for what changes
from call to call.

The marks are set through the C part of torch: importing ``torch._dynamo`` takes seconds, and most
programs do not. A torch before 2.7 has no such marks, and nothing is changed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType


def leave_uncompiled(
    torch: ModuleType, functions: Iterable[Callable[..., Any] | None], *, callees: bool
) -> None:
    """Let functions run as they are written; with ``callees`` also all that they call.

    Without ``callees``, what a function calls is compiled as if the function were not there.
    """
    frames: Any = torch._C._dynamo.eval_frame  # noqa: SLF001 - see the module
    mark = getattr(frames, "set_code_exec_strategy", None)
    if mark is None:
        return
    actions = frames._FrameAction  # noqa: SLF001 - see the module
    below = actions.SKIP if callees else actions.DEFAULT
    strategy = frames._FrameExecStrategy(actions.SKIP, below)  # noqa: SLF001 - see the module
    for function in functions:
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is not None:  # written in Python
            mark(code, strategy)
