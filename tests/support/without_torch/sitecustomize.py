"""Hide torch: Python imports this before anything else when its folder is on the path."""

import sys

sys.modules["torch"] = None  # type: ignore[assignment]  # the documented way to refuse an import
