"""Lists of addresses and networks, as the configuration writes them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

MAX_REMEMBERED: Final = 4096
"""Addresses whose answer is remembered; when they are so many, all are forgotten."""

_IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class Networks:
    """Which addresses are in a list like ``("10.0.0.0/8", "::1", "unix")``.

    An address is asked for as text; the empty text is a unix socket. An IPv4 address that came
    mapped into IPv6 (``::ffff:10.0.0.1``) is the IPv4 address.

    Raises:
        ValueError: an entry that is no address, network or "unix".
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._unix = "unix" in entries
        self._networks: tuple[_IpNetwork, ...] = tuple(
            ipaddress.ip_network(entry) for entry in entries if entry != "unix"
        )
        self._remembered: dict[str, bool] = {}

    def __contains__(self, address: object) -> bool:
        if not address:
            return self._unix
        if not self._networks or not isinstance(address, str):
            return False
        known = self._remembered.get(address)
        if known is None:
            known = self._look_up(address)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[address] = known
        return known

    def _look_up(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            address = mapped
        return any(
            address.version == network.version and address in network for network in self._networks
        )

    def __bool__(self) -> bool:
        return self._unix or bool(self._networks)

    def __repr__(self) -> str:
        entries = [str(network) for network in self._networks] + ["unix"] * self._unix
        return f"<Networks {', '.join(entries)}>"
