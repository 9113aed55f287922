"""Addresses between text and the socket module.

:mod:`gateway.config.address` reads what people write (``host:port``, ``[v6]:port``,
``unix:/path``); here such an address becomes the family and the tuple that ``bind`` and ``connect``
take, and what ``getsockname`` or ``accept`` gave becomes an address again. One reading for both
ends: what a listener binds and what the upstream dialler connects to.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from gateway.config.address import Address, TcpAddress, UnixAddress, parse_address

SockAddr = tuple[str, int] | tuple[str, int, int, int] | str
"""What ``bind`` and ``connect`` take for AF_INET, AF_INET6 and AF_UNIX."""


class SocketAddress(NamedTuple):
    """A family and its socket address; ``str()`` writes it as the configuration would."""

    family: socket.AddressFamily
    sockaddr: SockAddr

    def __str__(self) -> str:
        return str(address_of(self.family, self.sockaddr))


class Peers(NamedTuple):
    """The two ends of a client's connection, None where it is a unix socket.

    Behind another proxy they are what its PROXY protocol header says.
    """

    source: TcpAddress | None = None
    destination: TcpAddress | None = None


def peers_of(sock: socket.socket) -> Peers:
    """The ends of a connected socket."""
    source = address_of(sock.family, sock.getpeername())
    destination = address_of(sock.family, sock.getsockname())
    if isinstance(source, TcpAddress) and isinstance(destination, TcpAddress):
        return Peers(source, destination)
    return Peers()


def socket_address(address: Address | str) -> SocketAddress | None:
    """The socket address of a literal IP address or a unix path; None for a host name.

    A zone of an IPv6 address (``fe80::1%eth0``, RFC 4007 section 11) is looked up.

    Raises:
        ValueError: text that is no address.
        OSError: a zone that names no interface of this host.
    """
    if isinstance(address, str):
        address = parse_address(address)
    if isinstance(address, UnixAddress):
        return SocketAddress(socket.AF_UNIX, address.path)
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return None
    if ip.version == 4:
        return SocketAddress(socket.AF_INET, (address.host, address.port))
    host, _, zone = address.host.partition("%")
    return SocketAddress(socket.AF_INET6, (host, address.port, 0, _scope_id(zone)))


def address_of(family: int, sockaddr: object) -> Address:
    """What ``getsockname``, ``getpeername`` or ``accept`` gave, as an address.

    The peer of a unix socket mostly has no name: its path is empty then.
    """
    if family == socket.AF_UNIX:
        return UnixAddress(sockaddr if isinstance(sockaddr, str) else "")
    if not isinstance(sockaddr, tuple):
        raise TypeError(f"{sockaddr!r} is not a socket address of family {family}")
    host, port = sockaddr[0], sockaddr[1]
    if family == socket.AF_INET6 and sockaddr[3] and "%" not in host:
        host = f"{host}%{_zone(sockaddr[3])}"
    return TcpAddress(host, port)


def _scope_id(zone: str) -> int:
    if not zone:
        return 0
    return int(zone) if zone.isascii() and zone.isdigit() else socket.if_nametoindex(zone)


def _zone(scope_id: int) -> str:
    try:
        return socket.if_indextoname(scope_id)
    except OSError:
        return str(scope_id)
