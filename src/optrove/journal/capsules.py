"""Tensors of recorded calls in a directory: each distinct tensor is one file, named by its hash.

A file is a safetensors document, compressed with gzip if that makes it smaller. It gets its name
when it is complete, so a process that is killed leaves no broken file under a valid name.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import struct
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN: Final = ".safetensors"
COMPRESSED: Final = ".safetensors.gz"

_NAME: Final = re.compile(r"[0-9a-f]{64}")
_SAMPLE: Final = 1 << 16
_WORTHWHILE: Final = 0.9
"""Compressed files must be smaller than this share of the plain ones."""

_LEVEL: Final = 1
_COUNT: Final = struct.Struct("@Q")


class TensorFiles:
    """The tensors in one directory, by the hashes of their documents."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, digest: str) -> Path | None:
        """Return the file of a tensor; None if it is not in the directory."""
        if _NAME.fullmatch(digest) is None:
            return None
        paths = (self.directory / f"{digest}{suffix}" for suffix in (PLAIN, COMPRESSED))
        return next((path for path in paths if path.exists()), None)

    def __contains__(self, digest: str) -> bool:
        return self.path(digest) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield the hashes of all tensors."""
        if self.directory.is_dir():
            for path in sorted(self.directory.iterdir()):
                digest = path.name.partition(".")[0]
                if path.name in (digest + PLAIN, digest + COMPRESSED):
                    yield digest

    def read(self, digest: str) -> bytes:
        """Return the document of a tensor; BadData if it is missing or has changed."""
        path = self.path(digest)
        if path is None:
            raise _fault(digest, f"the tensor is not in {self.directory}")
        try:
            content = path.read_bytes()
            document = gzip.decompress(content) if path.name.endswith(COMPRESSED) else content
        except (OSError, EOFError, gzip.BadGzipFile) as error:
            raise _fault(digest, f"{path} cannot be read: {error}") from error
        if digest_of(document) != digest:
            raise _fault(digest, f"{path} was changed; remove it, and record the call again")
        return document

    def write(self, digest: str, content: bytes, suffix: str) -> None:
        """Write a file that ``packed`` has made; OSError if the disk does not take it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{digest}.{os.getpid()}"
        try:
            temporary.write_bytes(content)
            temporary.rename(self.directory / f"{digest}{suffix}")
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise

    def remove(self, digest: str) -> None:
        """Remove a tensor, if it is there."""
        path = self.path(digest)
        if path is not None:
            path.unlink(missing_ok=True)

    def take_over(self, other: TensorFiles, digest: str) -> None:
        """Move a tensor of another directory here, or copy it to another file system."""
        source = other.path(digest)
        if source is None or digest in self:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            source.rename(self.directory / source.name)
        except OSError:
            self.copy(other, digest)
            source.unlink(missing_ok=True)

    def copy(self, other: TensorFiles, digest: str) -> None:
        """Copy a tensor of another directory, if it is there and not yet here."""
        source = other.path(digest)
        if source is not None and digest not in self:
            self.write(digest, source.read_bytes(), source.name[len(digest) :])


def digest_of(document: bytes) -> str:
    """Return the hash that names the file of a document."""
    return sha256(document).hexdigest()


def packed(document: bytes) -> tuple[bytes, str]:
    """Return the content of a document's file, and the end of the file's name."""
    sample = document[:_SAMPLE]
    if len(gzip.compress(sample, _LEVEL, mtime=0)) < _WORTHWHILE * len(sample):
        content = gzip.compress(document, _LEVEL, mtime=0)
        if len(content) < _WORTHWHILE * len(document):
            return content, COMPRESSED
    return document, PLAIN


def _fault(digest: str, problem: str) -> BadData:
    return BadData((Fault(f"tensor {digest[:12]}", problem),))


class Budget:
    """The bytes that all processes of a run may write together, counted in a shared file."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self.limit = limit

    def take(self, size: int) -> bool:
        """Count ``size`` bytes if they are within the limit; return whether they are."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            (used,) = _COUNT.unpack(os.pread(descriptor, _COUNT.size, 0) or bytes(_COUNT.size))
            if used + size > self.limit:
                return False
            os.pwrite(descriptor, _COUNT.pack(max(0, used + size)), 0)
        finally:
            os.close(descriptor)
        return True

    def free_bytes(self) -> int:
        """Return how many bytes the disk can still take."""
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize

    def give_back(self, size: int) -> None:
        """Count files that were removed."""
        self.take(-size)
