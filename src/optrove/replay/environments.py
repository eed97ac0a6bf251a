"""Environments with other releases of a package: this environment, with one package replaced.

The releases come from the package index. Each environment is made with uv if it is installed, else
with venv and pip. It holds the release with its dependencies and a wheel of optrove; everything
else, such as torch and pytest, comes from the environment that runs. They are kept in

    <cache>/environments/<package>-<version>-<python>/
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import html
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from optrove.errors import UnusableRelease
from optrove.settings import INDEX, cache_directory, package_index, with_path
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_JSON: Final = "application/vnd.pypi.simple.v1+json"
_SECONDS: Final = 60
_LINK: Final = re.compile(r"<a\b[^>]*href=\"([^\"]*)\"[^>]*>\s*([^<\s]+)\s*</a>")
_FINAL: Final = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?")
_VERSION: Final = re.compile(
    r"(?P<numbers>\d+(?:\.\d+)*)[._-]?(?:(?P<stage>dev|a|b|rc|post)(?P<count>\d*))?"
)
_STAGES: Final = {"dev": -4, "a": -3, "b": -2, "rc": -1, "post": 1}
_COMPLETE: Final = "optrove-complete"
_OPTROVE: Final = "optrove-digest"
_OVERLAY: Final = "zz-optrove-overlay.pth"


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package; ``size`` is that of its download in bytes, where it is known."""

    version: str
    size: int | None = None
    url: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether it is not a pre-release."""
        return _FINAL.fullmatch(self.version) is not None


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return the key that orders versions; a pre-release comes before its final release."""
    found = _VERSION.match(version)
    if found is None:
        raise UnusableRelease(f"{version!r} is not a version; write one like 0.78.0 or 0.79.0rc2")
    numbers = [int(part) for part in found["numbers"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _STAGES.get(found["stage"] or "", 0), int(found["count"] or 0)


def releases_between(package: str, good: str, bad: str, *, pre: bool = False) -> list[Release]:
    """Return the releases from ``good`` to ``bad`` that run on this Python, in their order.

    UnusableRelease if the index cannot be read, or if it does not have one of the two.
    """
    ends = (version_key(good), version_key(bad))
    found = [
        each
        for each in _released(package)
        if min(ends) <= version_key(each.version) <= max(ends)
        and (pre or each.is_final or version_key(each.version) in ends)
    ]
    known = {version_key(each.version) for each in found}
    for version in (good, bad):
        if version_key(version) not in known:
            near = ", ".join(each.version for each in found[-5:]) or "none between the two"
            raise UnusableRelease(
                f"{package_index()} has no {package} {version} for Python "
                f"{platform.python_version()} on {platform.machine()}; it has {near}"
            )
    return found if ends[0] < ends[1] else found[::-1]


def download_size(release: Release) -> int | None:
    """Return the size of a release in bytes, as the index or its server states it."""
    if release.size is not None or release.url is None:
        return release.size
    request = urllib.request.Request(release.url, method="HEAD")  # noqa: S310 - a file of the index
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - likewise
            size: str | None = answer.headers.get("Content-Length")
    except (OSError, ValueError):
        return None
    return None if size is None else int(size)


def _released(package: str) -> list[Release]:
    """Return all releases of the index that have a wheel for this Python."""
    url = f"{package_index().rstrip('/')}/{re.sub(r'[-_.]+', '-', package).lower()}/"
    request = urllib.request.Request(url, headers={"Accept": f"{_JSON}, text/html;q=0.1"})  # noqa: S310 - the index that the user has chosen
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - likewise
            text = answer.read().decode()
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise UnusableRelease(
            f"the releases of {package} cannot be read from {url}: {error}; "
            f"set {INDEX.name} to a package index"
        ) from error
    files: Iterable[dict[str, Any]]
    if text.lstrip().startswith("{"):
        files = (each for each in json.loads(text)["files"] if not each.get("yanked"))
    else:
        files = (
            {"filename": name, "url": urljoin(url, html.unescape(link))}
            for link, name in _LINK.findall(text)
        )
    found: dict[str, Release] = {}
    for file in files:
        version = _wheel_version(file["filename"])
        if version is not None:
            found.setdefault(version, Release(version, file.get("size"), file.get("url")))
    return sorted(found.values(), key=lambda each: version_key(each.version))


def _wheel_version(name: str) -> str | None:
    """Return the version of a wheel that this Python can install; None for other files."""
    if not name.endswith(".whl"):
        return None
    _, version, *_, python, abi, system = name.removesuffix(".whl").split("-")
    own = f"cp{sys.version_info.major}{sys.version_info.minor}"
    fits = own in python.split(".") or "py3" in python.split(".") or abi == "abi3"
    here = system == "any" or ("linux" in system and system.endswith(platform.machine()))
    return version if fits and here else None


@dataclass(slots=True)
class Environments:
    """The environments of one package, made when they are needed.

    ``used`` has the place of each release that was asked for, ``made`` the ones that were not there
    before.
    """

    package: str
    log: Callable[[str], object] = lambda _: None
    used: dict[str, Path] = field(default_factory=dict)
    made: set[Path] = field(default_factory=set)

    @property
    def directory(self) -> Path:
        """The directory that holds all environments."""
        return cache_directory() / "environments"

    def path(self, version: str) -> Path:
        """Return the place of an environment."""
        own = f"py{sys.version_info.major}{sys.version_info.minor}"
        return self.directory / f"{self.package}-{version}-{own}"

    def has(self, version: str) -> bool:
        """Return whether an environment is there from before."""
        return (self.path(version) / _COMPLETE).exists()

    def python(self, version: str) -> Path:
        """Return the interpreter with a release; UnusableRelease if it cannot be installed."""
        place = self.path(version)
        if version not in self.used:
            self.directory.mkdir(parents=True, exist_ok=True)
            with (self.directory / f"{place.name}.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not self.has(version):
                    self.made.add(place)
                    self._make(version, place)
                self._install_optrove(place)
            self.used[version] = place
        return place / "bin" / "python"

    def remove(self) -> None:
        """Remove the environments that were made, but not those of an earlier time."""
        for place in self.made:
            shutil.rmtree(place, ignore_errors=True)

    def _make(self, version: str, place: Path) -> None:
        self.log(f"making an environment with {self.package} {version}")
        shutil.rmtree(place, ignore_errors=True)
        uv = shutil.which("uv")
        make = [uv, "venv", "-q", "--python", sys.executable, str(place)]
        if uv is None:
            make = [sys.executable, "-m", "venv", "--without-pip", str(place)]
        _run(make)
        self._install(place, f"{self.package}=={version}")
        python = place / "bin" / "python"
        overlay = "".join(
            f"import site; site.addsitedir({path!r})\n"
            for path in sys.path
            if Path(path).name in ("site-packages", "dist-packages")
        )
        (_packages(python) / _OVERLAY).write_text(overlay)
        _write_scripts(python)
        (place / _COMPLETE).touch()

    def _install_optrove(self, place: Path) -> None:
        """Install the optrove that runs, unless another process, which may use it, has done so."""
        files = _own_wheel()
        digest, known = _digest(repr(sorted(files.items())).encode()), place / _OPTROVE
        if known.exists() and known.read_text() == digest:
            return
        wheel = place / f"optrove-{__version__}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        self._install(place, "--no-deps", "--force-reinstall", str(wheel))
        known.write_text(digest)

    def _install(self, place: Path, *what: str) -> None:
        python, uv = str(place / "bin" / "python"), shutil.which("uv")
        install = [uv, "pip", "install", "-q", "--python", python]
        if uv is None:
            install = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
            install += ["--disable-pip-version-check"]
        _run([*install, *what])


def _packages(python: Path) -> Path:
    (found,) = (python.parents[1] / "lib").glob("python*/site-packages")
    return found


def _write_scripts(python: Path) -> None:
    """Write the commands of this environment, such as pytest, for the other interpreter."""
    for each in entry_points(group="console_scripts"):
        script = python.parent / each.name
        if script.exists() or "/" in each.name:
            continue
        module, _, function = each.value.partition(":")
        name = function.partition(".")[0].partition(" ")[0]
        script.write_text(
            f"#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)


def _own_wheel() -> dict[str, bytes]:
    """Return the files of a wheel of the optrove that runs, by name."""
    root = Path(__file__).parents[1]
    facts = f"optrove-{__version__}.dist-info"
    files = {
        f"optrove/{path.relative_to(root)}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }
    about = f"Metadata-Version: 2.1\nName: optrove\nVersion: {__version__}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: optrove\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    entries = "[console_scripts]\noptrove = optrove.cli.main:main\n\n"
    entries += "[pytest11]\noptrove = optrove.pytest_plugin\n"
    files[f"{facts}/METADATA"] = about.encode()
    files[f"{facts}/WHEEL"] = wheel.encode()
    files[f"{facts}/entry_points.txt"] = entries.encode()
    record = "".join(
        f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()
    )
    files[f"{facts}/RECORD"] = f"{record}{facts}/RECORD,,\n".encode()
    return files


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _run(command: Sequence[str | None]) -> None:
    """Run a command that makes an environment; UnusableRelease with its last words if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(  # noqa: S603 - uv, venv or pip, with our own words
            [str(word) for word in command], stdout=output, stderr=output, check=False
        )
        output.seek(0)
        lines = output.read().strip().splitlines()
    if done.returncode:
        words = lines[-1] if lines else f"exit code {done.returncode}"
        raise UnusableRelease(f"{' '.join(map(str, command[-2:]))} failed: {words}")


def run_in(python: Path, command: str, seconds: float | None) -> tuple[int | None, str]:
    """Run a shell command with an environment first on the path.

    Return its exit code, None if it took too long, and the end of its output.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(  # noqa: S603 - the command that the user wants to bisect
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=with_path(python.parent),
            start_new_session=True,
        )
        code: int | None = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
        finally:
            if code is None:
                # The shell and the processes that it started.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read()[-2000:]
