"""Listening sockets: what is opened, what is inherited, and what an error tells."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.config.address import TcpAddress, UnixAddress
from gateway.errors import ListenError
from gateway.net.addresses import address_of, socket_address
from gateway.net.sockets import ListeningSockets, open_listener

Open = Callable[..., ListeningSockets]


@pytest.fixture
def listen() -> Iterator[Open]:
    """open_listener, whose listeners are closed after the test."""
    opened: list[ListeningSockets] = []

    def open_one(address: str, **options: int) -> ListeningSockets:
        opened.append(open_listener(address, **options))
        return opened[-1]

    yield open_one
    for listener in opened:
        listener.close()


def port_of(listener: ListeningSockets) -> int:
    assert isinstance(listener.address, TcpAddress)
    return listener.address.port


def accept(sock: socket.socket) -> socket.socket:
    """Accept, waiting for a connection that is on its way."""
    sock.settimeout(10)
    try:
        accepted, _ = sock.accept()
    finally:
        sock.setblocking(False)
    return accepted


@pytest.fixture
def no_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")


# Addresses


@pytest.mark.parametrize(
    ("text", "family", "sockaddr"),
    [
        ("127.0.0.1:80", socket.AF_INET, ("127.0.0.1", 80)),
        ("0.0.0.0:0", socket.AF_INET, ("0.0.0.0", 0)),
        ("[::1]:65535", socket.AF_INET6, ("::1", 65535, 0, 0)),
        ("[fe80::1%lo]:80", socket.AF_INET6, ("fe80::1", 80, 0, socket.if_nametoindex("lo"))),
        ("unix:/run/gateway.sock", socket.AF_UNIX, "/run/gateway.sock"),
    ],
)
def test_an_address_becomes_a_socket_address_and_comes_back(
    text: str, family: socket.AddressFamily, sockaddr: object
) -> None:
    found = socket_address(text)
    assert found is not None
    assert found == (family, sockaddr)
    assert str(found) == text


def test_the_long_form_of_an_ipv6_address_is_made_canonical() -> None:
    assert str(socket_address("[0:0::0001]:80")) == "[::1]:80"


def test_a_host_name_has_no_socket_address() -> None:
    assert socket_address("backend.example.org:80") is None


def test_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(OSError, match="(?i)no .*(interface|device)"):
        socket_address("[fe80::1%nowhere0]:80")


def test_the_peer_of_a_unix_socket_has_no_path() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert address_of(left.family, left.getpeername()) == UnixAddress("")


# TCP


def test_port_zero_gives_every_slot_the_same_port(listen: Open) -> None:
    listener = listen("127.0.0.1:0", slots=3)
    ports = {listener.for_slot(slot).getsockname()[1] for slot in range(3)}
    assert ports == {port_of(listener)}
    assert ports != {0}
    assert len({listener.for_slot(slot).fileno() for slot in range(3)}) == 3


def test_every_slot_gets_connections(listen: Open) -> None:
    listener = listen("127.0.0.1:0", slots=2)
    clients: list[socket.socket] = []
    waiting = {0, 1}
    while waiting and len(clients) < 200:  # the kernel hashes the client's port: 2**-200 to miss
        clients.append(socket.create_connection(("127.0.0.1", port_of(listener)), timeout=10))
        for slot in list(waiting):
            try:
                listener.for_slot(slot).accept()[0].close()
            except BlockingIOError:
                continue
            waiting.remove(slot)
    for client in clients:
        client.close()
    assert not waiting


def test_sockets_are_non_blocking_and_not_inherited_by_programs(listen: Open) -> None:
    sock = listen("127.0.0.1:0").for_slot(0)
    assert not sock.getblocking()
    assert not sock.get_inheritable()
    with pytest.raises(BlockingIOError):
        sock.accept()


def test_accepted_sockets_inherit_tcp_nodelay(listen: Open) -> None:
    listener = listen("127.0.0.1:0")
    with socket.create_connection(("127.0.0.1", port_of(listener)), timeout=10) as client:
        accepted = accept(listener.for_slot(0))
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0


@pytest.mark.usefixtures("no_ipv6")
def test_every_interface_of_ipv6_leaves_ipv4_alone(listen: Open) -> None:
    six = listen("[::]:0", slots=2)
    assert str(six.address) == f"[::]:{port_of(six)}"
    assert six.for_slot(1).getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    four = listen(f"0.0.0.0:{port_of(six)}", slots=2)
    assert port_of(four) == port_of(six)
    with socket.create_connection(("::1", port_of(six)), timeout=10):
        pass


def test_a_port_is_free_again_after_close(listen: Open) -> None:
    first = listen("127.0.0.1:0", slots=1)
    with socket.create_connection(("127.0.0.1", port_of(first)), timeout=10) as client:
        accept(first.for_slot(0)).close()  # the first to close is left in TIME_WAIT
        assert client.recv(1) == b""
    first.close()
    second = listen(str(first.address), slots=2)
    assert second.address == first.address


def test_a_worker_keeps_only_its_own_socket(listen: Open) -> None:
    listener = listen("127.0.0.1:0", slots=3)
    sockets = [listener.for_slot(slot) for slot in range(3)]
    listener.keep_only(1)
    assert [sock.fileno() >= 0 for sock in sockets] == [False, True, False]
    assert listener.for_slot(1) is sockets[1]


# Unix


def test_all_slots_share_one_unix_socket(listen: Open, tmp_path: Path) -> None:
    listener = listen(f"unix:{tmp_path}/s", slots=3)
    assert listener.for_slot(0) is listener.for_slot(2)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{tmp_path}/s")
        accept(listener.for_slot(1)).close()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_the_mode_of_a_unix_socket(listen: Open, tmp_path: Path, mode: int) -> None:
    umask = os.umask(0o077)
    try:
        listen(f"unix:{tmp_path}/s", unix_mode=mode)
        assert os.umask(0o077) == 0o077, "the umask is put back"
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == mode


def test_without_a_mode_the_umask_rules(listen: Open, tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        listen(f"unix:{tmp_path}/s")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o750


def test_a_stale_unix_socket_is_replaced(listen: Open, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen()
    listen(f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def test_a_unix_socket_that_answers_is_left_alone(listen: Open, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    first = listen(f"unix:{path}")
    before = os.stat(path).st_ino
    with pytest.raises(ListenError, match=rf"unix:{path}: something answers there"):
        open_listener(f"unix:{path}")
    assert os.stat(path).st_ino == before
    first.close()
    assert not os.path.exists(path)


def test_a_unix_socket_with_a_full_queue_is_in_use(listen: Open, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    listen(f"unix:{path}", backlog=1)
    clients: list[socket.socket] = []
    try:
        while True:
            clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            clients[-1].connect(path)
    except BlockingIOError:
        pass
    with pytest.raises(ListenError, match="something answers there"):
        open_listener(f"unix:{path}")
    for client in clients:
        client.close()


def test_closing_leaves_a_file_that_somebody_else_put_there(listen: Open, tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = listen(f"unix:{path}")
    path.rename(tmp_path / "moved")
    second = listen(f"unix:{path}")
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_a_worker_does_not_remove_the_file(listen: Open, tmp_path: Path) -> None:
    listener = listen(f"unix:{tmp_path}/s", slots=2)
    listener.keep_only(1)
    listener.close()
    assert (tmp_path / "s").exists()


# Errors


def test_a_port_in_use_is_named_with_where_to_look(listen: Open) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            listen(f"127.0.0.1:{port}", slots=2)
    message = str(caught.value)
    assert message.startswith(f"can't listen on 127.0.0.1:{port}: address in use")
    assert f"sport = :{port}" in message


def test_a_second_gateway_cannot_join_the_port_silently(listen: Open) -> None:
    first = listen("127.0.0.1:0", slots=2)
    with pytest.raises(ListenError, match="address in use"):
        listen(str(first.address), slots=2)


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("localhost:8080", "write 127.0.0.1:8080"),
        ("api.example.org:8080", "not the name api.example.org"),
        ("127.0.0.1", "no port"),
        ("127.0.0.1:99999", "not a port"),
        ("::1:80", "IPv6"),
        ("192.0.2.7:0", "no interface of this host has this address"),
        ("unix:/nonexistent/dir/s", "no such directory: /nonexistent/dir"),
        ("unix:/proc/version/s", "not a directory: /proc/version"),
        ("unix:/" + "x" * 120, "at most 107 bytes"),
    ],
)
def test_an_error_names_the_address_and_the_cause(address: str, cause: str) -> None:
    with pytest.raises(ListenError) as caught:
        open_listener(address)
    assert str(caught.value).startswith(f"can't listen on {address}: ")
    assert cause in str(caught.value)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ListenError, match="is not a socket; it is left alone"):
        open_listener(f"unix:{path}")
    assert path.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up root for the test")
def test_permission_denied_is_said(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    pid = os.fork()  # noqa: TID251 - the interpreter of a venv may be out of reach for nobody
    if not pid:  # in a child, which gives up root for good
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            try:
                open_listener(f"unix:{closed}/s")
            except ListenError as error:
                code = 0 if str(error).endswith(f"permission denied in {closed}") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_nothing_stays_open_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second slot fails, for whatever reason: the first one's socket is closed."""
    made: list[socket.socket] = []
    real = socket.socket.setsockopt

    def refuse_second(sock: socket.socket, level: int, option: int, value: int) -> None:
        if option == socket.SO_REUSEPORT and level == socket.SOL_SOCKET:
            made.append(sock)
            if len(made) == 2:
                raise OSError(22, "Invalid argument")
        real(sock, level, option, value)

    monkeypatch.setattr(socket.socket, "setsockopt", refuse_second)
    with pytest.raises(ListenError, match="Invalid argument"):
        open_listener("127.0.0.1:0", slots=2)
    assert [sock.fileno() for sock in made] == [-1, -1]
