"""Put the examples into a wheel, and build the C extensions if a compiler exists.

Without a compiler or Python's headers the package is pure Python, tracing is somewhat slower, and
hardware numerics are exact for small products only.
The compiler is that of the variable CC, else the one that Python was built with, else ``cc``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (
    "src/optrove/frameworks/_fast_path",
    "src/optrove/frameworks/_matrix_unit",
    "src/optrove/frameworks/_torch_fast_path",
)
EXAMPLES = "optrove/_examples"


class CompileHook(BuildHookInterface):
    """Compile each extension module beside its source; put them and the examples into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable installation finds modules and examples where they are."""
        if version != "editable":
            build_data["force_include"][str(Path(self.root, "examples"))] = EXAMPLES
        for module in MODULES:
            self._build(Path(self.root, module + ".c"), version, build_data)

    def _build(self, source: Path, version: str, build_data: dict[str, Any]) -> None:
        target = source.with_name(source.stem + str(sysconfig.get_config_var("EXT_SUFFIX")))
        problem = self._compile(source, target)
        if problem is not None:
            self.app.display_warning(f"optrove's C extension {source.stem} is not built: {problem}")
            if version == "editable":
                # A build of an older source would be found.
                target.unlink(missing_ok=True)
            return
        if version != "editable":
            inside = target.relative_to(Path(self.root, "src"))
            build_data["force_include"][str(target)] = str(inside)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _compile(self, source: Path, target: Path) -> str | None:
        """Compile the module; return the reason if that is not possible."""
        compiler = _compiler()
        if compiler is None:
            return "no C compiler was found"
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return "this Python has no global interpreter lock, which it relies on"
        # To another name first: a process may be running the module that is there.
        fresh = target.with_name(target.name + ".new")
        options = ["-O2", "-DNDEBUG", "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}"]
        command = [*compiler, *options, str(source), "-o", str(fresh)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return done.stderr.strip() or f"{compiler[0]} ended with {done.returncode}"
            fresh.replace(target)
        except OSError as error:
            return str(error)
        return None


def _compiler() -> list[str] | None:
    """Return the command of the first compiler that exists."""
    asked = os.environ.get("CC")  # noqa: TID251 - the variable by which builds choose a compiler
    found = [asked] if asked else [str(sysconfig.get_config_var("CC") or "cc"), "cc"]
    commands = [shlex.split(each) for each in found]
    return next((each for each in commands if each and shutil.which(each[0])), None)
