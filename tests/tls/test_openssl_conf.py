"""What OpenSSL takes for the whole process, tried in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .test_resumption import path

SCRIPT = """
import sys
from gateway.tls import openssl_conf
openssl_conf.apply({tickets}, {groups})
from tests.tls.pair import client, join, server
context, other = server(tickets={tickets}), client()
one, two = context.session(), other.session("localhost")
one.receive(two.outgoing())
two.receive(one.outgoing())
one.receive(two.outgoing())
tickets = one.outgoing()
print(one.group, tickets.count(b"\\x17\\x03\\x03"))
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": path()},
        check=False,
    )


@pytest.mark.parametrize(
    ("tickets", "groups", "said"),
    [
        (3, ["P-384", "X25519"], "secp384r1 3"),
        (1, ["X25519"], "x25519 1"),
        (0, ["X25519"], "x25519 0"),
    ],
)
def test_tickets_and_groups(tickets: int, groups: list[str], said: str):
    done = run(SCRIPT.format(tickets=tickets, groups=groups))
    assert done.stdout.lower().strip() == said, done.stderr


def test_too_late():
    script = "import OpenSSL.SSL\nfrom gateway.tls import openssl_conf\nopenssl_conf.apply(1, [])"
    assert "TooLateError" in run(script).stderr
