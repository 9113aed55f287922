"""Single operations, timed in a process of their own: once compiled, once interpreted.

``python -m benchmarks.micro`` prints them as a table. Each operation has a name that stays, so
that a regression has one too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.errors import BenchmarkError
from benchmarks.peers import GATEWAY, INTERPRETED
from benchmarks.peers.gateway import build_path
from benchmarks.process import ROOT
from benchmarks.spread import Summary, summarise

MODES: Final = {"compiled": GATEWAY, "interpreted": INTERPRETED}
"""The peer whose data path each mode is."""

TIMEOUT_S = 300.0

# The source tree comes last for the installed build: only `benchmarks` is to be found there.
_PROGRAM = """\
import sys
sys.path.{how}
from benchmarks.micro.child import main
main()
"""


@dataclass(frozen=True)
class Measured:
    """``operations`` in microseconds of CPU each; ``missing`` says why one is not there."""

    operations: Mapping[str, Summary]
    missing: Mapping[str, str]
    notes: list[str]


def measure_mode(mode: str, group: str, rounds: int, work: float) -> Measured:
    """The operations of ``group`` (``codec`` or ``picks``).

    ``mode`` is ``compiled`` or ``interpreted``. Each of the ``rounds`` takes about 50 ms for each
    operation, times ``work``. BenchmarkError if the child fails.
    """
    if mode == "interpreted":
        how, path = f"insert(0, {str(ROOT)!r})", ""
    else:
        how, path = f"append({str(ROOT)!r})", build_path()
    argv = [sys.executable, "-P", "-c", _PROGRAM.format(how=how), group, str(rounds), str(work)]
    env = {**os.environ, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"{mode} {group}: {error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{mode} {group} took more than {TIMEOUT_S} s") from error
    answer = json.loads(done.stdout)
    notes = []
    if mode == "compiled" and answer["build"] != "compiled":
        notes.append(f"the installed build is {answer['build']}")
    operations = {name: summarise(values) for name, values in answer["operations"].items()}
    return Measured(operations, answer["missing"], notes)
