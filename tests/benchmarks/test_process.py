"""Child processes: measured with their descendants, and gone after they are stopped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.process import Child, Tree, free_port

SELF = Tree(os.getpid())

# Forks once and says so; the parent burns CPU and memory when told, the child waits for its end.
PROGRAM = """\
import os, signal, sys, time
child = os.fork()
if child == 0:
    signal.pause()
held = [open("/dev/null") for _ in range(20)]
print(os.getpid(), child, flush=True)
for line in sys.stdin:
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    del block
    print("done", flush=True)
"""


def start(tmp_path: Path, program: str = PROGRAM) -> Child:
    return Child(
        "program",
        (sys.executable, "-c", program),
        cores=os.sched_getaffinity(0),
        log=tmp_path / "log",
        talks=True,
    )


def test_a_tree_is_measured_with_its_descendants(tmp_path: Path) -> None:
    with start(tmp_path) as child:
        parent, forked = map(int, child.ask(None, 20).split())
        assert child.tree.members() == [parent, forked]
        assert child.tree.descriptors() >= 20
        before = child.tree.usage()
        resting = child.tree.resident()
        child.tree.reset_peak()
        assert child.ask("burn", 20) == "done"
        used = child.tree.usage().since(before)
        # The block was freed: only the peak knows of it.
        assert child.tree.peak().total_kib > resting.total_kib + 60 * 1024
        assert child.tree.peak().largest_kib < child.tree.peak().total_kib
    assert 200_000 <= used.cpu_us < 2_000_000
    assert used.switches >= 1


def test_stopping_leaves_no_descendant(tmp_path: Path) -> None:
    with start(tmp_path) as child:
        pids = [int(pid) for pid in child.ask(None, 20).split()]
    assert not [pid for pid in SELF.members() if pid in pids]
    assert Tree(pids[0]).usage().cpu_us == 0


def test_a_child_runs_on_its_cores(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    program = "import os; print(*os.sched_getaffinity(0), flush=True)"
    argv = (sys.executable, "-c", program)
    with Child("program", argv, cores={core}, log=tmp_path / "log", talks=True) as child:
        assert child.ask(None, 20) == str(core)


def test_a_child_that_ends_while_starting_says_why(tmp_path: Path) -> None:
    program = "import sys; sys.exit('no such file')"
    with (
        start(tmp_path, program) as child,
        pytest.raises(BenchmarkError, match="no such file"),
    ):
        child.wait_for_port(free_port())


def test_a_child_that_does_not_answer_says_why(tmp_path: Path) -> None:
    with (
        start(tmp_path, "import sys; sys.exit('broken')") as child,
        pytest.raises(BenchmarkError, match="broken"),
    ):
        child.ask("hello", 20)


def test_what_can_not_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="could not be started"):
        Child("nothing", ("/nonexistent",), cores={0}, log=tmp_path / "log")
