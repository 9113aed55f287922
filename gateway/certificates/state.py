"""OCSP responses on disk, with what is known of them: for all workers, and for the next start.

Three files for each certificate in ``STATE_DIRECTORY/ocsp``, named by its SHA-256: ``.der`` the
last good response, ``.json`` what is known of it, ``.lock`` held by the worker that asks the
responder. Files are replaced, never written over, so a reader sees one whole or the other.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

MAX_STATE: Final = 65_536


class Known(msgspec.Struct, kw_only=True):
    """Times are seconds of the Unix epoch, 0 where there is none. ``fetches`` and ``failures``
    count since the certificate was first served."""

    names: list[str]
    url: str = ""
    fetches: int = 0
    failures: int = 0
    failures_in_row: int = 0
    last_error: str = ""
    revoked: bool = False
    received_at: float = 0.0
    this_update: float = 0.0
    expires_at: float = 0.0
    next_at: float = 0.0


class State:
    """The files of one certificate."""

    def __init__(self, directory: str, fingerprint: str) -> None:
        folder = Path(directory) / "ocsp"
        self._response = folder / f"{fingerprint}.der"
        self._known = folder / f"{fingerprint}.json"
        self._lock = folder / f"{fingerprint}.lock"

    def prepare(self) -> None:
        """Make the directory. Raises OSError."""
        self._known.parent.mkdir(parents=True, exist_ok=True, mode=0o755)

    def stamp(self) -> tuple[int, int]:
        """Changes when something was saved; zeros before."""
        try:
            found = self._known.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)

    def known(self) -> Known | None:
        """What is known; None if nothing is, or the file is damaged."""
        try:
            return msgspec.json.decode(_read(self._known), type=Known)
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            return None

    def response(self) -> bytes:
        """The last good response; empty without one."""
        try:
            return _read(self._response)
        except OSError:
            return b""

    def save(self, known: Known, response: bytes | None) -> None:
        """Replace what is known, and the response unless None. Raises OSError."""
        if response is not None:
            _replace(self._response, response)
        _replace(self._known, msgspec.json.format(msgspec.json.encode(known)) + b"\n")

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether this process is the one to ask now; the kernel forgets it when it dies."""
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_STATE)


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        new.replace(path)
    finally:
        with suppress(OSError):
            new.unlink()
