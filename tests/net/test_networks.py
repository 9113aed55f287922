"""Lists of addresses and networks."""

from __future__ import annotations

import pytest

from gateway.net.networks import MAX_REMEMBERED, Networks

LIST = Networks(("10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "unix"))


@pytest.mark.parametrize(
    "address", ["10.1.2.3", "192.0.2.7", "2001:db8::1", "", "::ffff:10.0.0.1", "2001:db8::1%eth0"]
)
def test_in(address: str) -> None:
    for _ in range(2):  # looked up, and remembered
        assert address in LIST


@pytest.mark.parametrize("address", ["11.0.0.1", "192.0.2.8", "2001:db9::1", "host", "10.0.0.0/8"])
def test_not_in(address: str) -> None:
    for _ in range(2):
        assert address not in LIST


def test_nothing_is_in_an_empty_list() -> None:
    assert "" not in Networks(())
    assert "10.0.0.1" not in Networks(())
    assert not Networks(())
    assert Networks(("unix",))


def test_what_is_remembered_is_bounded() -> None:
    networks = Networks(("10.0.0.0/8",))
    for number in range(3 * MAX_REMEMBERED):
        assert f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" in networks
    assert len(networks._remembered) <= MAX_REMEMBERED


def test_what_is_no_network() -> None:
    with pytest.raises(ValueError):
        Networks(("10.0.0.1/8",))
