"""``gateway demo``, as a newcomer runs it."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from gateway.demo import run
from gateway.demo.traffic import Record

from .processes import WAIT_S, Lines, gateway_command


def test_once_ends_by_itself() -> None:
    done = subprocess.run(
        [*gateway_command(), "demo", "--once"],
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"ok    (\d+) of \1 calls were right", done.stdout), done.stdout
    assert "ok    24 of 24 sessions of ring_hash stayed on one backend" in done.stdout
    for name in ("fast", "medium", "slow", "web-1", "web-2", "curl --http2-prior-knowledge"):
        assert name in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stays_up_until_a_signal(number: int, tmp_path: Path) -> None:
    """It serves after its own traffic; a signal ends it, its children and its files."""
    child = subprocess.Popen(
        [*gateway_command(), "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None
    lines = Lines(child.stdout)
    try:
        lines.wait_for(lambda line: "until Ctrl-C" in line)
        written = "\n".join(lines.seen)
        url = re.search(r"http://\S+/hello", written)
        configuration = re.search(r"configuration: (\S+)", written)
        pid = re.search(r"\bpid (\d+)", written)
        assert url is not None
        assert configuration is not None
        assert pid is not None
        child.send_signal(number)
        assert child.wait(WAIT_S) == 0
        lines.join()
    finally:
        child.kill()
        child.wait()
    assert not Path(configuration[1]).exists()
    assert not Path(f"/proc/{pid[1]}").exists()


def test_a_wrong_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        Record("ring", "unary", f"session-{number}", backend="fast")
        for number in range(run.SESSIONS)
    ]
    assert run.report(records)
    assert not run.report([*records, Record("least", "bidi", "s", wrong="tokens are missing")])
    assert "WRONG 24 of 25 calls were right" in capsys.readouterr().out


def test_a_session_that_moves_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        Record("ring", "unary", f"session-{number}", backend="fast")
        for number in range(run.SESSIONS)
    ]
    assert not run.report([*records, Record("ring", "unary", "session-0", backend="slow")])
    assert "WRONG 23 of 24 sessions" in capsys.readouterr().out
