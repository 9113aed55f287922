"""The cases of docs/smuggling.md: what is refused reaches no endpoint, the rest has one reading.

Two independent parsers judge what the backend received: h11 and llhttp (httptools). For both it
must be the same sequence of requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
import h11
import httptools
import pytest

from .conftest import StartGateway, Stopping, config_for
from .processes import GatewayProcess
from .raw import RawBackend, RawClient, RawConnection, echo

HTTP1 = {"protocol": "http1", "idle_timeout": "200ms"}
HOST = b"Host: a.test\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST / HTTP/1.1\r\n" + HOST
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"


class Message(NamedTuple):
    """A request as a parser read it."""

    method: bytes
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


def read_by_h11(octets: bytes) -> list[Message]:
    """What h11, as a server, reads."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(octets)
    messages: list[Message] = []
    body = b""
    head: h11.Request | None = None
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            head, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            fields = tuple((bytes(name), bytes(value)) for name, value in head.headers)
            messages.append(Message(bytes(head.method), bytes(head.target), fields, body))
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
        else:
            assert event is h11.NEED_DATA, event
            return messages


def read_by_llhttp(octets: bytes) -> list[Message]:
    """What llhttp reads."""
    messages: list[Message] = []

    class Reader:
        def on_message_begin(self) -> None:
            self.target = self.body = b""
            self.fields: list[tuple[bytes, bytes]] = []

        def on_url(self, url: bytes) -> None:
            self.target += url

        def on_header(self, name: bytes, value: bytes) -> None:
            self.fields.append((name.lower(), value))

        def on_body(self, body: bytes) -> None:
            self.body += body

        def on_message_complete(self) -> None:
            messages.append(
                Message(parser.get_method(), self.target, tuple(self.fields), self.body)
            )

    parser = httptools.HttpRequestParser(Reader())
    parser.feed_data(octets)
    return messages


class Backend:
    """The backend of all cases: what it received since the case began."""

    def __init__(self, raw: RawBackend) -> None:
        self._raw = raw
        self._before = [len(connection.received) for connection in raw.connections]

    @property
    def new(self) -> list[bytes]:
        """The octets, by connection. Cases begin and end between messages."""
        before = (*self._before, *[0] * len(self._raw.connections))
        found = [
            connection.received[start:]
            for connection, start in zip(self._raw.connections, before, strict=False)
        ]
        return [octets for octets in found if octets]

    def messages(self) -> list[Message]:
        """What both judges say that it received."""
        messages: list[Message] = []
        for octets in self.new:
            one, other = read_by_h11(octets), read_by_llhttp(octets)
            assert one == other
            messages += one
        return messages

    def whole(self) -> list[Message]:
        """The requests of which it received everything."""
        return [message for octets in self.new for message in read_by_llhttp(octets)]


@pytest.fixture(scope="module")
def raw_backend() -> Iterator[RawBackend]:
    raw = RawBackend(echo)
    yield raw
    raw.stop()


@pytest.fixture(scope="module")
def process(
    raw_backend: RawBackend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """One gateway for all cases."""
    config = config_for([raw_backend], cluster=HTTP1)
    process = GatewayProcess(config, tmp_path_factory.mktemp("smuggling"))
    try:
        yield process
        assert not process.wait_until_idle()
        process.signal()
        assert process.wait() == 0, process.output
        assert "Traceback" not in process.output, process.output
    finally:
        process.kill()


@pytest.fixture
def backend(raw_backend: RawBackend) -> Backend:
    return Backend(raw_backend)


def answers(process: GatewayProcess, octets: bytes) -> list[int]:
    """The statuses of all responses until the connection ends."""
    with RawClient(process.port, octets) as client:
        try:
            everything = client.rest()
        except ConnectionResetError:
            everything = client.received
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", everything)]


REFUSED = {
    "CL.TE": POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    "TE.CL": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGPOST /\r\n0\r\n\r\n",
    "two lengths that differ": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "two lengths that are equal": POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "a list of lengths": POST + b"Content-Length: 1, 1\r\n\r\na",
    "a length with a sign": POST + b"Content-Length: +1\r\n\r\na",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a length with a space": POST + b"Content-Length: 1 0\r\n\r\na",
    "a length in hexadecimal": POST + b"Content-Length: 0x1\r\n\r\na",
    "a length that overflows": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "an empty length": POST + b"Content-Length:\r\n\r\n",
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "identity, chunked": POST + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked with a parameter": POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "chunked, chunked": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "quoted chunked": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "an empty coding": POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "vertical tab before chunked": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "two codings": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding and another": POST
    + b"Transfer-Encoding: chunked\r\nTransfer-encoding: cow\r\n\r\n0\r\n\r\n",
    "a coding in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 5\r\n\r\nabcde",
    "a tab before the colon": POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "a space before the first field": b"GET / HTTP/1.1\r\n Host: a.test\r\n\r\n",
    "a folded field": GET + b"X: a\r\n b\r\n\r\n",
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "LF at the end of a field": GET + b"X: a\nY: b\r\n\r\n",
    "LF at the end of the request line": b"GET / HTTP/1.1\nHost: a.test\r\n\r\n",
    "LF LF at the end of the head": b"GET / HTTP/1.1\r\nHost: a\n\nGET /b HTTP/1.1\r\n\r\n",
    "CR in a field": GET + b"X: a\rY: b\r\n\r\n",
    "CR CR LF": GET + b"X: a\r\r\n\r\n",
    "NUL in a value": GET + b"X: a\0b\r\n\r\n",
    "NUL in a name": GET + b"X\0: a\r\n\r\n",
    "a control character in a value": GET + b"X: a\x01b\r\n\r\n",
    "an empty name": GET + b": a\r\n\r\n",
    "a name that is no token": GET + b"X(y): a\r\n\r\n",
    "a name with an octet above 127": GET + b"X\xe9: a\r\n\r\n",
    "a line without a colon": GET + b"X\r\n\r\n",
    "two spaces in the request line": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tab in the request line": b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a space after the version": b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
    "a space in the target": b"GET /a HTTP/1.1 b HTTP/1.1\r\nHost: a\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "a lower-case method": b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    "an unknown method": b"SMUGGLE / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a control character in the target": b"GET /a\x01b HTTP/1.1\r\nHost: a\r\n\r\n",
    "an octet above 127 in the target": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": GET + b"Host: b.test\r\n\r\n",
    "a Host that is no authority": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a Host with user information": b"GET / HTTP/1.1\r\nHost: me@a\r\n\r\n",
    "an absolute target of another scheme": b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "user information in an absolute target": b"GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "Connection names host": GET + b"Connection: host\r\n\r\n",
    "Connection names content-length": POST
    + b"Connection: content-length\r\nContent-Length: 3\r\n\r\nabc",
    "two empty lines before a request": b"\r\n\r\n" + GET + b"\r\n",
    "a chunk size with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk size with a sign": POST + b"Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    "a chunk size with a space": POST + b"Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    "no chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n",
    "a chunk size that overflows": POST
    + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "LF after a chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "LF in a chunk extension": POST
    + b"Transfer-Encoding: chunked\r\n\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
    "CR in a chunk extension": POST
    + b"Transfer-Encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n0\r\n\r\n",
    "LF after chunk data": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n",
    "more chunk data than its size": POST
    + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
    "a trailer with a space before the colon": POST
    + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
    "a folded trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n z\r\n\r\n",
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(process: GatewayProcess, backend: Backend, case: str) -> None:
    """One answer, 400, and the connection ends: what follows is not read as a request."""
    before = process.counters()["failure_malformed_request"]
    assert answers(process, REFUSED[case] + SMUGGLED) == [400], case
    assert b"smuggled" not in b"".join(backend.new)
    # Where the head was right and the body was not, the endpoint saw no more than a beginning.
    assert backend.whole() == []
    assert process.counters()["failure_malformed_request"] == before + 1


@pytest.mark.parametrize("version", [b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3.0"])
def test_other_versions(process: GatewayProcess, backend: Backend, version: bytes) -> None:
    assert answers(process, b"GET / %s\r\nHost: a\r\n\r\n" % version) == [505]
    assert not backend.new


@pytest.mark.parametrize(
    "version", [b"http/1.1", b"HTTP/11", b"HTTPS/1.1", b"ICE/1.0", b"RTSP/1.0"]
)
def test_what_is_no_version(process: GatewayProcess, backend: Backend, version: bytes) -> None:
    assert answers(process, b"GET / %s\r\nHost: a\r\n\r\n" % version) == [400]
    assert not backend.new


class Passed(NamedTuple):
    """A request that is served, and what the backend is to see of it."""

    octets: bytes
    message: Message
    without: tuple[bytes, ...] = ()


PASSED = {
    "an absolute target": Passed(
        b"GET http://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
        Message(b"GET", b"/x", ((b"host", b"b.test"),), b""),
    ),
    "Connection names a field": Passed(
        GET + b"Connection: x-secret\r\nX-Secret: 1\r\n\r\n",
        Message(b"GET", b"/", ((b"host", b"a.test"),), b""),
        (b"x-secret", b"connection"),
    ),
    "an upgrade to h2c": Passed(
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        Message(b"GET", b"/", ((b"host", b"a.test"),), b""),
        (b"upgrade", b"http2-settings", b"connection"),
    ),
    "an upgrade to websocket with a body": Passed(
        POST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nab",
        Message(b"POST", b"/", ((b"host", b"a.test"), (b"content-length", b"2")), b"ab"),
        (b"upgrade", b"connection"),
    ),
    "an empty line before the request": Passed(
        b"\r\n" + GET + b"\r\n", Message(b"GET", b"/", ((b"host", b"a.test"),), b"")
    ),
    "white space around a value": Passed(
        GET + b"X-Y: \t z \t\r\n\r\n",
        Message(b"GET", b"/", ((b"host", b"a.test"), (b"x-y", b"z")), b""),
    ),
    "chunk extensions": Passed(
        POST + b'Transfer-Encoding: chunked\r\n\r\n3;a="b;c"\r\nabc\r\n0;x\r\n\r\n',
        Message(b"POST", b"/", ((b"host", b"a.test"),), b"abc"),
        (b"content-length",),
    ),
    "CHUNKED in capitals": Passed(
        POST + b"Transfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        Message(b"POST", b"/", ((b"host", b"a.test"),), b"abc"),
    ),
    "dot segments and encoded slashes": Passed(
        b"GET /a/../%2e%2e/b%2fc//d HTTP/1.1\r\n" + HOST + b"\r\n",
        Message(b"GET", b"/a/../%2e%2e/b%2fc//d", ((b"host", b"a.test"),), b""),
    ),
}


@pytest.mark.parametrize("case", PASSED)
def test_passed(process: GatewayProcess, backend: Backend, case: str) -> None:
    """Both judges read what was meant, and then the next request as another one."""
    passed = PASSED[case]
    end = GET.replace(b"GET / ", b"GET /next ") + b"Connection: close\r\n\r\n"
    assert answers(process, passed.octets + end) == [200, 200]
    first, second = backend.messages()
    assert (first.method, first.target, first.body) == (
        passed.message.method,
        passed.message.target,
        passed.message.body,
    )
    for field in passed.message.fields:
        assert field in first.fields
    names = [name for name, _ in first.fields]
    for name in passed.without:
        assert name not in names
    assert len([name for name in names if name == b"host"]) == 1
    assert second.target == b"/next"


RESPONSES = {
    "both length and coding": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "another coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a folded field": b"X: a\r\n b\r\n\r\n",
    "LF alone": b"X: a\nY: b\r\n\r\n",
    "a space before the colon": b"Content-Length : 0\r\n\r\n",
    "NUL": b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "a chunk size that is none": b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
}


@pytest.mark.parametrize("case", RESPONSES)
def test_responses(gateway: StartGateway, stopping: Stopping, case: str) -> None:
    """An endpoint whose response can be read in two ways gets no second request there."""

    def script(connection: RawConnection) -> None:
        connection.head()
        connection.send(b"HTTP/1.1 200 OK\r\n" + RESPONSES[case])
        connection.until_closed()

    backend = stopping(RawBackend(script))
    process = gateway([backend], cluster=HTTP1)
    with RawClient(process.port, GET + b"\r\n") as client:
        try:
            answer = client.until(b"\r\n\r\n")
        except EOFError:
            answer = client.received
    if "chunk size" not in case:  # there the head was out before
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"x-gateway-error: upstream_protocol" in answer
    assert backend.connection(0).ended.wait(20)


def test_101_to_who_did_not_ask(gateway: StartGateway, stopping: Stopping) -> None:
    def script(connection: RawConnection) -> None:
        connection.head()
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        connection.until_closed()

    process = gateway([stopping(RawBackend(script))], cluster=HTTP1)
    with RawClient(process.port, GET + b"\r\n") as client:
        assert client.response()[0] == 502


DOWNGRADES = {
    "connection": [(b"connection", b"close")],
    "transfer-encoding": [(b"transfer-encoding", b"chunked")],
    "upgrade": [(b"upgrade", b"websocket")],
    "keep-alive": [(b"keep-alive", b"1")],
    "te": [(b"te", b"gzip")],
    "a length that is not the DATA's": [(b"content-length", b"5")],
    "two lengths": [(b"content-length", b"3"), (b"content-length", b"4")],
    "CR LF in a value": [(b"x", b"a\r\nTransfer-Encoding: chunked")],
    "LF in a value": [(b"x", b"a\nb")],
    "NUL in a value": [(b"x", b"a\0b")],
    "CR LF in a name": [(b"x: y\r\nz", b"a")],
    "a colon in a name": [(b"x:y", b"a")],
    "a space in a name": [(b"x y", b"a")],
    "a capital in a name": [(b"X", b"a")],
    "another host": [(b"host", b"b.test")],
    ":path with a space": [(b":path", b"/ HTTP/1.1\r\nHost: b")],
    ":path with a line break": [(b":path", b"/\r\nX: y")],
    ":method with a space": [(b":method", b"GET / HTTP/1.1")],
    ":authority with a line break": [(b":authority", b"a\r\nX: y")],
}


@pytest.mark.parametrize("case", DOWNGRADES)
def test_from_http2(process: GatewayProcess, backend: Backend, case: str) -> None:
    """What HTTP/2 could hide in a field never becomes a line of HTTP/1.1."""
    connection = h2.connection.H2Connection(
        h2.config.H2Configuration(
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    pseudo = {
        b":method": b"POST",
        b":scheme": b"http",
        b":authority": b"a.test",
        b":path": b"/",
    }
    extra = []
    for name, value in DOWNGRADES[case]:
        if name in pseudo:
            pseudo[name] = value
        else:
            extra.append((name, value))
    connection.initiate_connection()
    connection.send_headers(1, [*pseudo.items(), *extra])
    connection.send_data(1, b"abc", end_stream=True)
    with RawClient(process.port, connection.data_to_send()) as client:
        statuses: list[bytes] = []
        ended = False
        while not ended:
            for event in connection.receive_data(client.sock.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived):
                    statuses += [value for name, value in event.headers if name == b":status"]
                ended |= isinstance(event, (h2.events.StreamReset, h2.events.StreamEnded))
    assert b"200" not in statuses
    assert backend.whole() == []


def test_cookie_crumbs_are_joined(process: GatewayProcess, backend: Backend) -> None:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    connection.initiate_connection()
    pseudo = ((b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/"))
    connection.send_headers(1, [*pseudo, (b"cookie", b"a=1"), (b"cookie", b"b=2")], end_stream=True)
    with RawClient(process.port, connection.data_to_send()) as client:
        ended = False
        while not ended:
            for event in connection.receive_data(client.sock.recv(65536)):
                ended |= isinstance(event, h2.events.StreamEnded)
    (message,) = backend.messages()
    assert [value for name, value in message.fields if name == b"cookie"] == [b"a=1; b=2"]
