"""Starting HTTP/2: the connection preface, RFC 9113 section 3.4 (3.5 in the cases' numbering)."""

from __future__ import annotations

import pytest

from .frames import DEFAULT_WINDOW, PREFACE, Setting, ping, settings
from .peer import Address, Peer
from .script import Case, alive, closed, each

OUR_SETTINGS = settings({Setting.INITIAL_WINDOW_SIZE: DEFAULT_WINDOW})


def server_preface(peer: Peer) -> None:
    """The very first frame must be SETTINGS, and not an acknowledgement."""
    first = peer.wait(lambda _: True, "the server's SETTINGS as its first frame")
    if first.type != 0x4 or first.is_ack or first.stream != 0:
        raise peer.mismatch("the server's SETTINGS as its first frame", f"it is {first}")


CASES = (
    Case("http2/3.5/1 client preface", PREFACE + OUR_SETTINGS, server_preface, handshake=False),
    Case(
        "http2/3.5/2 invalid preface", b"NO SUCH PROTOCOL AT ALL\r\n\r\n", closed, handshake=False
    ),
    Case(
        "rfc9113/3.4 invalid preface after a right beginning",
        PREFACE[:16] + b"XX" + PREFACE[18:] + OUR_SETTINGS,
        closed,
        handshake=False,
    ),
    Case("rfc9113/3.4 preface without SETTINGS", PREFACE + ping(), closed, handshake=False),
)


@each(CASES)
def test_starting(case: Case, server: Address) -> None:
    case.run(server)


@pytest.mark.parametrize("size", [1, 3, 24, 25])
def test_preface_in_pieces(server: Address, size: int) -> None:
    """rfc9113/3.4: the preface may come in any number of TCP segments."""
    whole = PREFACE + OUR_SETTINGS
    with Peer(server) as peer:
        for start in range(0, len(whole), size):
            peer.send(whole[start : start + size])
        server_preface(peer)
        alive(peer)
