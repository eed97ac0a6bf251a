"""Build the part of optrove that is written in C, where there is a compiler for it.

Without a compiler or Python's headers the package is pure Python, and tracing somewhat slower.
"""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "src/optrove/backends/_hurry"


class CompileHook(BuildHookInterface):
    """Compile one extension module beside its source, and take it into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable installation finds the module beside its source."""
        source = Path(self.root, MODULE + ".c")
        target = source.with_name(source.stem + str(sysconfig.get_config_var("EXT_SUFFIX")))
        if not self._compile(source, target):
            return
        if version != "editable":
            inside = target.relative_to(Path(self.root, "src"))
            build_data["force_include"][str(target)] = str(inside)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _compile(self, source: Path, target: Path) -> bool:
        compiler = shlex.split(str(sysconfig.get_config_var("CC") or "cc"))[0]
        include = sysconfig.get_path("include")
        # To another name first: a process may be running the module that is there.
        fresh = target.with_name(target.name + ".new")
        command = [
            compiler,
            "-O2",
            "-fPIC",
            "-shared",
            f"-I{include}",
            str(source),
            "-o",
            str(fresh),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            self.app.display_warning(f"optrove's part in C is not built: {error}")
            return False
        if done.returncode != 0:
            self.app.display_warning(f"optrove's part in C is not built: {done.stderr.strip()}")
            return False
        fresh.replace(target)
        return True
