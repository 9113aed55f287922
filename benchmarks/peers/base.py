"""What a proxy of the race is."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from benchmarks.process import find_program
from benchmarks.tls.material import Material


@dataclass(frozen=True)
class Plan:
    """What a proxy is to do: in on ``port``, out to ``backends`` (ports of 127.0.0.1).

    ``http1_in`` and ``http1_out`` say which side speaks HTTP/1.1 and not cleartext HTTP/2.
    Of two endpoints the one with fewer requests in flight is picked, where a proxy can do so.
    With ``tls`` the side in front speaks TLS 1.3, with tickets, a staple and early data where it
    can. ``directory`` is its own, for its configuration.
    """

    port: int
    backends: tuple[int, ...]
    workers: int
    directory: Path
    http1_in: bool = False
    http1_out: bool = False
    tls: Material | None = None


@dataclass(frozen=True)
class Launch:
    """How to start it. It stays in the foreground."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


class Peer(ABC):
    """A proxy that can be measured."""

    name: ClassVar[str]
    package: ClassVar[str]
    """What to install to have it."""

    @abstractmethod
    def find(self) -> str | None:
        """The program; None when it is not installed."""

    @abstractmethod
    def launch(self, plan: Plan) -> Launch:
        """Write the configuration for ``plan`` and say how to start the proxy with it."""

    def version(self) -> str:
        """One line, as the program says it."""
        program = self.find()
        if program is None:
            return "not installed"
        return first_line([program, self.version_option])

    early_data: ClassVar[bool] = False
    """Whether it takes 0-RTT."""

    version_option: ClassVar[str] = "--version"

    def program(self) -> str:
        """Like :meth:`find`, where it has been found before."""
        found = self.find()
        if found is None:
            raise LookupError(f"{self.name} is not installed ({self.package})")
        return found


def first_line(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """The first line that a program writes, wherever it writes it."""
    given = None if env is None else {**os.environ, **env}
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=20,
            env=given,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return lines[0] if lines else "unknown"


def beside_python(name: str) -> str | None:
    """A script of the environment this runs in, else a program on the path."""
    script = Path(sys.executable).with_name(name)
    return str(script) if script.exists() else find_program(name)
