"""Check that torch knows the devices and the compiler of a target, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.installed import is_importable
from optrove.model.torch_target import TorchTarget

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODULE: Final = "optrove.frameworks.torch.target_check"
_FOUND: Final = "unknown to torch: "
# Every torch knows these, and importing it to ask would take seconds.
_DEVICES: Final = frozenset({"cpu", "cuda", "meta", "mps", "xpu"})
_COMPILERS: Final = frozenset({None, "inductor", "aot_eager", "eager"})


def unknown_in(text: str | None) -> str:
    """Return which device or compiler of a target with this text torch does not know, or nothing.

    Another process imports torch and the modules of the target. If it cannot, return nothing:
    the cases then say why they are not run.
    """
    target = TorchTarget.parse(text)
    devices = {name.partition(":")[0] for name in _devices(target)}
    is_common = devices <= _DEVICES and target.compiler in _COMPILERS
    if is_common or not is_importable("torch"):
        return ""
    command = [sys.executable, "-m", _MODULE, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    lines = [line for line in done.stdout.splitlines() if line.startswith(_FOUND)]
    return lines[-1].removeprefix(_FOUND) if lines else ""


def find_unknown(torch: Any, target: TorchTarget) -> str:
    """Return which device or compiler torch does not know, or nothing."""
    for name in target.imports:
        import_module(name)
    for name in _devices(target):
        unknown = _unknown_device(torch, name)
        if unknown:
            return unknown
    if target.compiler is None:
        return ""
    known = import_module("torch._dynamo").list_backends(())
    if target.compiler in known:
        return ""
    about = _nearest(target.compiler, known)
    return f"torch.compile knows no backend {target.compiler!r} (--import registers more){about}"


def _devices(target: TorchTarget) -> list[str]:
    return [*filter(None, (target.device,)), *(new for _, new in target.mapped)]


def _unknown_device(torch: Any, name: str) -> str:
    try:
        torch.device(name)
    except RuntimeError as error:
        listed = str(error).removeprefix("Expected one of ").partition(" device type")[0]
        about = _nearest(name.partition(":")[0], listed.split(", "))
        return f"torch knows no device {name!r}{about}"
    return ""


def _nearest(name: str, known: Iterable[str]) -> str:
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


if __name__ == "__main__":
    found = find_unknown(import_module("torch"), TorchTarget.parse(sys.argv[1]))
    sys.stdout.write(f"\n{_FOUND}{found}\n" if found else "")
