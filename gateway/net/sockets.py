"""Listening sockets, opened once by the parent and kept until it ends.

**One socket per worker slot.** On TCP each slot has a socket of its own on the same port
(SO_REUSEPORT, socket(7)): the kernel spreads connections over them by a hash, no two workers wake
for one connection, and each has its own queue. A worker that dies takes its copy of the descriptor
with it, but the parent's copy keeps the queue alive, so the connections in it wait for the next
worker of that slot instead of being reset. Unix sockets know no SO_REUSEPORT: all slots share one.

**A port is refused when somebody else has it.** SO_REUSEPORT alone would let a second gateway of
the same user join silently and take half of the connections, so a plain socket tries the port
first. Port 0 takes a free port for the first slot; the others bind that same port.

**A unix socket's file** outlives its socket. It is removed at start only when nothing answers on
it, and at the end only when it is still the file that was made here. Neither is atomic in unix(7):
two gateways started in the same instant on one stale path may both believe that they have it.

TCP_NODELAY is set on the listening socket, and accepted sockets inherit it (Linux copies the flag;
tests/net/test_sockets.py checks it), which saves a system call per connection.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable

from gateway.config.address import Address, TcpAddress, UnixAddress, parse_address
from gateway.errors import ListenError
from gateway.net.addresses import SocketAddress, address_of, socket_address

DEFAULT_BACKLOG = 1024
"""Connections that may wait for an accept, per slot; the kernel caps it at net.core.somaxconn."""


class ListeningSockets:
    """The sockets of one listener: ``for_slot(i)`` is the one that worker ``i`` accepts from.

    ``address`` is the bound address, with the real port where 0 was asked for.
    """

    def __init__(
        self,
        address: Address,
        sockets: list[socket.socket],
        *,
        file_id: tuple[int, int] | None = None,
    ) -> None:
        self.address = address
        self._sockets = sockets
        self._file_id = file_id

    def for_slot(self, slot: int) -> socket.socket:
        """The socket of worker ``slot``. All slots share the only socket of a unix listener."""
        return self._sockets[slot if len(self._sockets) > 1 else 0]

    def keep_only(self, slot: int) -> None:
        """In a worker, after the fork: close the sockets of the other slots. Removes no file."""
        mine = self.for_slot(slot)
        for other in self._sockets:
            if other is not mine:
                other.close()
        self._sockets = [mine]
        self._file_id = None

    def close(self) -> None:
        """In the parent: close every socket and remove the unix socket's file. Idempotent."""
        if self._file_id is not None and isinstance(self.address, UnixAddress):
            _unlink_if_same(self.address.path, self._file_id)
            self._file_id = None
        for sock in self._sockets:
            sock.close()

    def __repr__(self) -> str:
        return f"<ListeningSockets {self.address} x{len(self._sockets)}>"


def open_listener(
    address: str,
    *,
    slots: int = 1,
    backlog: int = DEFAULT_BACKLOG,
    unix_mode: int | None = None,
) -> ListeningSockets:
    """Bind ``address`` and listen, with one socket per worker slot (one for all on unix).

    The sockets are non-blocking. ``unix_mode`` is the permission bits of a unix socket's file,
    None leaves them to the umask; connecting needs write permission (unix(7)).

    Raises:
        ListenError: it names the address and the cause. Nothing stays open then.
    """
    try:
        parsed = parse_address(address)
    except ValueError as error:
        raise ListenError(f"can't listen on {address}: {error}") from None
    try:
        if isinstance(parsed, UnixAddress):
            return _open_unix(parsed, backlog, unix_mode)
        bindable = socket_address(parsed)
        if bindable is None:
            raise ListenError(f"can't listen on {address}: {_no_names(parsed)}")
        return _open_tcp(bindable, slots, backlog)
    except OSError as error:
        raise ListenError(f"can't listen on {address}: {_cause(parsed, error)}") from None


def close_all(listeners: Iterable[ListeningSockets]) -> None:
    """Close every listener of the parent."""
    for listener in listeners:
        listener.close()


def _open_tcp(address: SocketAddress, slots: int, backlog: int) -> ListeningSockets:
    family, sockaddr = address
    if sockaddr[1]:
        with _tcp_socket(family) as alone:
            alone.bind(sockaddr)
    opened: list[socket.socket] = []
    try:
        for _ in range(slots):
            sock = _tcp_socket(family)
            opened.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind(sockaddr)
            sockaddr = sock.getsockname()  # the port, where it was 0
        # Only now, when none can fail for its address any more: a socket that listens gets
        # connections at once.
        for sock in opened:
            sock.listen(backlog)
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return ListeningSockets(address_of(family, sockaddr), opened)


def _tcp_socket(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # A port whose old connections are in TIME_WAIT may be bound again (RFC 9293 section 3.6.1).
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        # [::] and 0.0.0.0 stay two listeners, whatever net.ipv6.bindv6only says (RFC 3493 5.3).
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


def _open_unix(address: UnixAddress, backlog: int, mode: int | None) -> ListeningSockets:
    path = address.path
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    file_id = None
    try:
        _bind_unix(sock, path, mode)
        status = os.lstat(path)
        file_id = (status.st_dev, status.st_ino)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        if file_id is not None:
            _unlink_if_same(path, file_id)
        raise
    return ListeningSockets(address, [sock], file_id=file_id)


def _bind_unix(sock: socket.socket, path: str, mode: int | None) -> None:
    """Bind, which makes the file with the permissions that the umask leaves (unix(7))."""
    if mode is None:
        sock.bind(path)
        return
    umask = os.umask(
        0o777 & ~mode
    )  # not a chmod after it: the file is never open to more than that
    try:
        sock.bind(path)
    finally:
        os.umask(umask)


def _remove_stale(path: str) -> None:
    """Remove the file of a socket that nobody listens on. Raises OSError when it must stay."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise FileExistsError(errno.EEXIST, "the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            _unlink_if_same(path, (status.st_dev, status.st_ino))
            return
        except FileNotFoundError:
            return
        except PermissionError:
            raise
        except OSError:  # EAGAIN: its queue is full; EPROTOTYPE: a socket of another kind
            pass
    raise OSError(errno.EADDRINUSE, "in use")


def _unlink_if_same(path: str, file_id: tuple[int, int]) -> None:
    try:
        status = os.lstat(path)
        if (status.st_dev, status.st_ino) == file_id:
            os.unlink(path)
    except OSError:
        pass  # gone, or its directory is no longer ours to write; at a start, bind tells


def _no_names(address: TcpAddress) -> str:
    if address.host == "localhost":
        return f"a listener takes an IP address: write 127.0.0.1:{address.port}"
    return (
        f"a listener takes an IP address, not the name {address.host} "
        f"(for every interface: 0.0.0.0:{address.port})"
    )


def _cause(address: Address, error: OSError) -> str:
    """What went wrong and what to look for, in one clause."""
    if isinstance(address, UnixAddress):
        return _unix_cause(address.path, error)
    match error.errno:
        case errno.EADDRINUSE:
            return f"address in use; to see who has it: ss -ltnp 'sport = :{address.port}'"
        case errno.EACCES:
            return (
                "permission denied; ports below 1024 (net.ipv4.ip_unprivileged_port_start) "
                "need the capability CAP_NET_BIND_SERVICE"
            )
        case errno.EADDRNOTAVAIL:
            return "no interface of this host has this address"
        case errno.EAFNOSUPPORT:
            return "the kernel has no IPv6" if ":" in address.host else "the kernel has no IPv4"
        case _:
            return error.strerror or str(error)


def _unix_cause(path: str, error: OSError) -> str:
    directory = os.path.dirname(path)
    match error.errno:
        case errno.EADDRINUSE:
            return f"something answers there; to see who: ss -lxp src unix:{path}"
        case errno.EACCES | errno.EPERM:
            return f"permission denied in {directory}"
        case errno.ENOENT:
            return f"no such directory: {directory}"
        case errno.ENOTDIR:
            return f"not a directory: {directory}"
        case errno.EEXIST:
            return "the file exists and is not a socket; it is left alone"
        case _:
            return error.strerror or str(error)
