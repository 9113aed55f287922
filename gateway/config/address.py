"""Addresses as the configuration writes them: ``host:port``, ``[v6]:port`` and ``unix:/path``."""

from __future__ import annotations

import ipaddress

import msgspec

MAX_UNIX_PATH = 107
"""Bytes of a socket path that fit into ``sockaddr_un`` on Linux, its final zero left out."""

FORMS = '"host:port", "[v6]:port" or "unix:/path"'


class TcpAddress(msgspec.Struct, frozen=True):
    """A host name or IP address (IPv6 without brackets) and a port, 0..65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixAddress(msgspec.Struct, frozen=True):
    """The absolute path of a unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read an address. IP addresses come back in their canonical form.

    Raises:
        ValueError: the text is none of the three forms; the message says what is wrong.
    """
    if text.startswith("unix:"):
        return UnixAddress(_unix_path(text[5:]))
    if text.startswith("["):
        inside, closed, rest = text[1:].partition("]")
        if not closed or not rest.startswith(":"):
            raise ValueError(f'"{text}" is not an address; an IPv6 one is written "[::1]:8080"')
        try:
            host = str(ipaddress.IPv6Address(inside))
        except ValueError:
            raise ValueError(f'"{inside}" in "{text}" is not an IPv6 address') from None
        return TcpAddress(host, _port(rest[1:], text))
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f'"{text}" has no port; an address is {FORMS}')
    if not host:
        raise ValueError(f'"{text}" has no host; for every address write "0.0.0.0{text}"')
    if ":" in host:
        raise ValueError(f'"{text}" is ambiguous; an IPv6 address is written "[{host}]:{port}"')
    if not host.isascii() or any(c.isspace() or c in "/@?#[]" for c in host):
        raise ValueError(f'"{host}" in "{text}" is not a host name; an address is {FORMS}')
    return TcpAddress(_canonical_host(host, text), _port(port, text))


_SECURE = {"http": False, "grpc": False, "https": True, "grpcs": True}
_PORTS = {"http": 80, "https": 443}


def parse_endpoint(text: str) -> tuple[Address, bool]:
    """Read the address of an endpoint, and whether its scheme asks for TLS.

    ``http`` and ``https`` have default ports.

    Raises:
        ValueError: the text is no address, or begins with another scheme.
    """
    scheme, found, rest = text.partition("://")
    if not found:
        return parse_address(text), False
    scheme = scheme.lower()
    if scheme not in _SECURE:
        raise ValueError(f'"{scheme}" in "{text}" is not a scheme: {", ".join(_SECURE)}')
    rest = rest.removesuffix("/")
    port = _PORTS.get(scheme)
    if port is not None and not rest.rpartition(":")[2].isdigit() and "unix:" not in rest:
        rest = f"{rest}:{port}"
    return parse_address(rest), _SECURE[scheme]


def _canonical_host(host: str, text: str) -> str:
    if host.replace(".", "").isdigit():
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f'"{host}" in "{text}" is not an IPv4 address') from None
    return host.lower()


def _port(port: str, text: str) -> int:
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f'"{port}" in "{text}" is not a port (0..65535)')
    return int(port)


def _unix_path(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f'"unix:{path}" must have an absolute path, like "unix:/run/gateway.sock"')
    length = len(path.encode())
    if length > MAX_UNIX_PATH:
        raise ValueError(
            f'the path of a unix socket has at most {MAX_UNIX_PATH} bytes, "{path}" has {length}'
        )
    if "\0" in path:
        raise ValueError("the path of a unix socket can't hold a zero byte")
    return path
