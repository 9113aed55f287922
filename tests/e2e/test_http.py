"""Plain HTTP/2 through the gateway: curl, nghttp, h2load and the ``h2`` library as clients; nghttpd
and the library as servers."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.plain import Http2Client, Http2Server, Message, response

from . import peers
from .conftest import FindTool, StartGateway, Stopping
from .processes import WAIT_S, GatewayProcess, free_port

Curl = Callable[..., Message]
MIB = 1 << 20
BODY = b"0123456789abcdef" * 1024


def site(request: Message) -> Message:
    """What the well-behaved server answers: the first part of the path says how."""
    method, path = request.get(":method"), request.get(":path") or "/"
    what, _, argument = path.partition("?")[0].strip("/").partition("/")
    if what == "status":
        body = b"" if argument in ("204", "304") else b"status %s\n" % argument.encode()
        return response(int(argument), body, [("x-from", "server")])
    if what == "headers":
        return response(200, json.dumps(request.headers).encode())
    if what == "echo":
        return response(200, bytes(request.body), [("x-size", str(len(request.body)))])
    if what == "bytes":
        size = int(argument)
        body = b"" if method == "HEAD" else BODY * (size // len(BODY))
        return response(200, body, [("content-length", str(size))])
    if what == "trailers":
        sent = json.dumps(request.trailers).encode()
        return response(200, sent, trailers=[("x-checksum", "abc"), ("x-empty", "")])
    if what == "early":
        answer = response(200, b"late")
        answer.informational = [
            [(":status", "103"), ("link", "</style.css>; rel=preload")],
            [(":status", "103"), ("link", "</script.js>; rel=preload")],
        ]
        return answer
    return response(200, f"{method} {path}\n".encode())


@pytest.fixture
def server(stopping: Stopping) -> Http2Server:
    """The well-behaved server."""
    return stopping(Http2Server(site))


@pytest.fixture
def curl(tool: FindTool, tmp_path: Path) -> Curl:
    """Request ``path`` by curl with prior knowledge of HTTP/2."""
    program = tool("curl")

    def request(process: GatewayProcess, path: str, *options: str) -> Message:
        head, body = tmp_path / "head", tmp_path / "body"
        body.write_bytes(b"")
        command = [program, "-sS", "--http2-prior-knowledge", "--max-time", str(WAIT_S)]
        subprocess.run(
            [*command, "-D", head, "-o", body, *options, f"http://{process.address}{path}"],
            check=True,
            timeout=2 * WAIT_S,
        )
        # The last head is the response's; those before are 1xx.
        first, *fields = head.read_text("latin-1").strip().split("\r\n\r\n")[-1].splitlines()
        version, status = first.split()[:2]
        assert version == "HTTP/2"
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in fields)]
        return Message([(":status", status), *headers], body.read_bytes())

    return request


class TestResponses:
    def test_status_codes(self, gateway: StartGateway, server: Http2Server, curl: Curl) -> None:
        process = gateway([server])
        for status in (200, 201, 204, 206, 301, 304, 400, 404, 418, 429, 500, 502, 503, 599):
            answer = curl(process, f"/status/{status}")
            assert answer.status == status
            assert answer.get("x-from") == "server"
            assert answer.get("x-gateway-error") is None
            assert answer.body == (b"" if status in (204, 304) else b"status %d\n" % status)

    def test_methods(self, gateway: StartGateway, server: Http2Server, curl: Curl) -> None:
        process = gateway([server])
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"):
            answer = curl(process, "/a/b?c=d%20e&f", "-X", method)
            assert answer.body == f"{method} /a/b?c=d%20e&f\n".encode()

    def test_head_has_a_length_and_no_body(
        self, gateway: StartGateway, server: Http2Server, curl: Curl
    ) -> None:
        answer = curl(gateway([server]), f"/bytes/{MIB}", "--head")
        assert answer.status == 200
        assert answer.get("content-length") == str(MIB)

    def test_trailers_both_ways(self, gateway: StartGateway, server: Http2Server) -> None:
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            sent = [("x-digest", "123"), ("x-twice", "a"), ("x-twice", "b")]
            answer = client.request("POST", "/trailers", body=b"body", trailers=sent)
            assert json.loads(answer.body) == [list(pair) for pair in sent]
            assert answer.trailers == [("x-checksum", "abc"), ("x-empty", "")]
            without_body = client.request("POST", "/trailers", trailers=sent)
            assert json.loads(without_body.body) == [list(pair) for pair in sent]

    def test_informational_heads(
        self, gateway: StartGateway, server: Http2Server, curl: Curl
    ) -> None:
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            answer = client.request("GET", "/early")
        assert [head[0] for head in answer.informational] == [(":status", "103")] * 2
        assert [dict(head)["link"] for head in answer.informational] == [
            "</style.css>; rel=preload",
            "</script.js>; rel=preload",
        ]
        assert (answer.status, answer.body) == (200, b"late")
        assert curl(process, "/early").body == b"late"


class TestBodies:
    def test_32_mib_there_and_back(
        self, gateway: StartGateway, server: Http2Server, curl: Curl, tmp_path: Path
    ) -> None:
        sent = tmp_path / "sent"
        sent.write_bytes(bytes(range(256)) * (32 * MIB // 256) + b"end")
        answer = curl(gateway([server]), "/echo", "--data-binary", f"@{sent}")
        assert answer.get("x-size") == str(32 * MIB + 3)
        assert _sha(answer.body) == _sha(sent.read_bytes())

    def test_body_of_unknown_length(
        self, gateway: StartGateway, server: Http2Server, tmp_path: Path
    ) -> None:
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            for size in (0, 1, 16_384, 16_385, 1_000_000):
                assert client.request("POST", "/echo", body=b"x" * size).body == b"x" * size

    def test_files_of_nghttpd(
        self, gateway: StartGateway, nghttpd: Any, curl: Curl, tmp_path: Path
    ) -> None:
        """64 MiB from a server that is nobody's in this repository."""
        content = bytes(range(251)) * (64 * MIB // 251)
        (nghttpd.directory / "large").write_bytes(content)
        answer = curl(gateway([nghttpd]), "/large")
        assert answer.status == 200
        assert answer.get("content-length") == str(len(content))
        assert _sha(answer.body) == _sha(content)

    def test_a_stalled_reader_costs_no_memory(self, gateway: StartGateway, nghttpd: Any) -> None:
        """1 GiB for a client that stops reading: less than 4 MiB more in the worker."""
        with (nghttpd.directory / "huge").open("wb") as file:
            file.truncate(1024 * MIB)
        process = gateway([nghttpd])
        with Http2Client(process.host, process.port) as warm:
            assert warm.request("GET", "/small").body == b"small"
            pid = process.worker_pids()[0]
            before = _resident_kib(pid)
            with Http2Client(process.host, process.port) as client:
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                client.h2.update_settings({4: 2**31 - 1})  # SETTINGS_INITIAL_WINDOW_SIZE
                client.h2.increment_flow_control_window(2**31 - 1 - 65535)
                client.receive_head(client.send("GET", "/huge"))
                received = -1
                while received != (now := process.counters()["upstream_bytes_in"]):
                    received = now
                    threading.Event().wait(0.3)  # until no more comes
                assert received < 64 * MIB
                assert _resident_kib(pid) - before < 4096
                assert warm.request("GET", "/small").body == b"small"


class TestFields:
    def headers(self, answer: Message) -> dict[str, str]:
        return dict(json.loads(answer.body))

    def test_forwarding(self, gateway: StartGateway, server: Http2Server, curl: Curl) -> None:
        process = gateway([server])
        seen = self.headers(curl(process, "/headers"))
        assert seen["x-forwarded-for"] == "127.0.0.1"
        assert seen["x-forwarded-proto"] == "http"
        assert seen["x-forwarded-host"] == process.address
        assert seen["via"] == "2 gateway"
        assert seen[":authority"] == process.address
        assert seen["user-agent"].startswith("curl/")

    def test_strangers_are_not_believed(
        self, gateway: StartGateway, server: Http2Server, curl: Curl
    ) -> None:
        options = ("-H", "X-Forwarded-For: 192.0.2.7", "-H", "Via: 1.1 edge")
        answer = curl(gateway([server]), "/headers", *options)
        pairs = json.loads(answer.body)
        values = {
            name: ", ".join(value for key, value in pairs if key == name)
            for name in ("x-forwarded-for", "via")
        }
        assert values == {"x-forwarded-for": "127.0.0.1", "via": "1.1 edge, 2 gateway"}

    def test_request_id(self, gateway: StartGateway, server: Http2Server, curl: Curl) -> None:
        process = gateway([server])
        made = {self.headers(curl(process, "/headers"))["x-request-id"] for _ in range(5)}
        assert len(made) == 5
        assert all(made)
        kept = curl(process, "/headers", "-H", "X-Request-Id: mine-1")
        assert self.headers(kept)["x-request-id"] == "mine-1"

    def test_response_says_via(
        self, gateway: StartGateway, server: Http2Server, curl: Curl
    ) -> None:
        assert curl(gateway([server]), "/").get("via") == "2 gateway"

    def test_te_is_only_trailers(
        self, gateway: StartGateway, server: Http2Server, curl: Curl
    ) -> None:
        process = gateway([server])
        assert self.headers(curl(process, "/headers", "-H", "TE: trailers"))["te"] == "trailers"
        assert "te" not in self.headers(curl(process, "/headers"))

    def test_many_cookies_and_values_arrive_in_order(
        self, gateway: StartGateway, server: Http2Server
    ) -> None:
        process = gateway([server])
        sent = [("cookie", f"c{n}={n}") for n in range(5)] + [("x-v", str(n)) for n in range(5)]
        with Http2Client(process.host, process.port) as client:
            pairs = json.loads(client.request("GET", "/headers", sent).body)
        cookies = "; ".join(value for name, value in pairs if name == "cookie")
        assert cookies == "c0=0; c1=1; c2=2; c3=3; c4=4"
        assert [value for name, value in pairs if name == "x-v"] == list("01234")


class TestErrors:
    """Each has its status, its ``x-gateway-error`` and a line that names the cause."""

    def check(self, answer: Message, status: int, kind: str, *causes: str) -> None:
        assert answer.status == status
        assert answer.get("x-gateway-error") == kind
        assert answer.get("content-type") == "text/plain; charset=utf-8"
        text = bytes(answer.body).decode()
        assert answer.get("content-length") == str(len(answer.body))
        assert text.startswith(f"{kind}: ")
        for cause in causes:
            assert cause in text

    def test_no_route(self, gateway: StartGateway, server: Http2Server, curl: Curl) -> None:
        process = gateway([server], route={"match": {"path_prefix": "/here/"}})
        assert curl(process, "/here/").status == 200
        self.check(curl(process, "/there"), 404, "no_route")
        head = curl(process, "/there", "--head")
        assert (head.status, head.get("x-gateway-error")) == (404, "no_route")

    def test_connect_failed(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        port = stopping(peers.RefusingPort())
        self.check(curl(gateway([port]), "/"), 502, "connect_failed", port.address)

    def test_upstream_closed(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("closing", peers.ClosesAtOnce))
        self.check(curl(gateway([server]), "/"), 502, "upstream_closed", server.address)

    def test_upstream_reset(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("resetting", peers.ResetsInternal))
        self.check(curl(gateway([server]), "/"), 502, "upstream_reset")

    def test_upstream_protocol(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("bad", peers.BadResponse))
        self.check(curl(gateway([server]), "/"), 502, "upstream_protocol")

    def test_upstream_refused(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("refusing", peers.RefusesStreams))
        answer = curl(gateway([server]), "/")
        self.check(answer, 503, "upstream_refused")
        assert answer.get("retry-after") == "1"

    def test_request_timeout(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("silent", peers.Silent))
        process = gateway([server], route={"timeout": "200ms"})
        self.check(curl(process, "/"), 504, "request_timeout")
        server.wait("reset")

    def test_idle_timeout(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("silent", peers.Silent))
        process = gateway([server], route={"idle_timeout": "200ms"})
        self.check(curl(process, "/"), 504, "idle_timeout")
        server.wait("reset")

    def test_connect_timeout(self, gateway: StartGateway, curl: Curl, stopping: Stopping) -> None:
        """A listener whose queue is full answers no SYN."""
        full = stopping(peers.FullPort())
        process = gateway([full], cluster={"connect_timeout": "300ms"})
        self.check(curl(process, "/"), 504, "connect_timeout", full.address)

    def test_pending_timeout(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("narrow", peers.OneSilentStream))
        process = gateway([server], cluster={"max_connections": 1, "pending_timeout": "300ms"})
        with Http2Client(process.host, process.port) as client:
            client.send("GET", "/")
            server.wait("request")
            self.check(curl(process, "/"), 503, "pending_timeout", server.address)

    def test_overloaded(self, gateway: StartGateway, stopping: Stopping, curl: Curl) -> None:
        server = stopping(peers.ScriptedServer("narrow", peers.OneSilentStream))
        process = gateway([server], cluster={"max_connections": 1, "max_pending": 1})
        with Http2Client(process.host, process.port) as client:
            client.send("GET", "/1")
            server.wait("request")
            client.send("GET", "/2")
            process.wait_for_counter("pending", 1)
            self.check(curl(process, "/3"), 503, "overloaded")

    def test_request_too_large(
        self, gateway: StartGateway, server: Http2Server, tmp_path: Path
    ) -> None:
        """With and without a content-length; the connection goes on."""
        process = gateway([server], route={"max_request_body": 1000})
        with Http2Client(process.host, process.port) as client:
            assert client.request("POST", "/echo", body=bytes(1000)).status == 200
            for headers in ([], [("content-length", "1001")]):
                answer = client.request("POST", "/echo", headers, body=bytes(1001))
                self.check(answer, 413, "request_too_large")
            assert client.request("POST", "/echo", body=bytes(1000)).status == 200

    @pytest.mark.parametrize(
        ("limit", "headers"),
        [
            ({"max_header_list_size": 4096}, [("x-large", "v" * 5000)]),
            ({"max_fields": 32}, [(f"x-{number}", "v") for number in range(40)]),
        ],
    )
    def test_headers_too_large(
        self,
        gateway: StartGateway,
        server: Http2Server,
        limit: dict[str, int],
        headers: list[tuple[str, str]],
    ) -> None:
        """The connection goes on, with its table of fields in step."""
        process = gateway([server], http2=limit)
        with Http2Client(process.host, process.port) as client:
            small = [("x-small", "v")]
            assert client.request("GET", "/", small).status == 200
            self.check(client.request("GET", "/", headers), 431, "headers_too_large")
            assert dict(json.loads(client.request("GET", "/headers", small).body))["x-small"] == "v"

    def test_cut_off_after_the_head(self, gateway: StartGateway, stopping: Stopping) -> None:
        """A part is never taken for the whole: the stream is reset."""
        server = stopping(peers.ScriptedServer("closing", peers.ClosesMidStream))
        process = gateway([server])
        with Http2Client(process.host, process.port) as client:
            stream_id = client.send("GET", "/")
            assert dict(client.receive_head(stream_id))[":status"] == "200"
            with pytest.raises(ConnectionResetError, match="reset"):
                client.receive(stream_id)


class TestListeners:
    def test_ipv6(self, gateway: StartGateway, server: Http2Server, curl: Curl) -> None:
        address = f"[::1]:{free_port('::1')}"
        answer = curl(gateway([server], listener={"address": address}), "/headers")
        assert dict(json.loads(answer.body))["x-forwarded-for"] == "::1"

    def test_unix_socket(
        self, gateway: StartGateway, server: Http2Server, curl: Curl, tmp_path: Path
    ) -> None:
        path = tmp_path / "socket"
        process = gateway([server], listener={"address": f"unix:{path}", "mode": "0600"})
        assert path.stat().st_mode & 0o777 == 0o600
        process.address = "any.example"
        answer = curl(process, "/headers", "--unix-socket", str(path))
        assert dict(json.loads(answer.body))[":authority"] == "any.example"


class TestTools:
    def test_nghttp_multiplexes(
        self, gateway: StartGateway, server: Http2Server, tool: FindTool
    ) -> None:
        process = gateway([server])
        out = subprocess.run(
            [tool("nghttp"), "-n", "-s", "-m", "50", f"http://{process.address}/status/200"],
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_S,
        ).stdout
        assert len(re.findall(r"\s200\s+\S+\s+/status/200", out)) == 50, out

    @pytest.mark.parametrize("policy", ["least_connections", "round_robin"])
    def test_h2load(self, gateway: StartGateway, nghttpd: Any, tool: FindTool, policy: str) -> None:
        """A few thousand requests of ten connections at ten streams each: every one is right."""
        process = gateway([nghttpd], workers=2, cluster={"policy": policy})
        url = f"http://{process.address}/small"
        out = subprocess.run(
            [tool("h2load"), "-n", "3000", "-c", "10", "-m", "10", url],
            capture_output=True,
            text=True,
            check=True,
            timeout=2 * WAIT_S,
        ).stdout
        assert "3000 succeeded, 0 failed, 0 errored, 0 timeout" in out, out
        assert "status codes: 3000 2xx" in out, out


class Nghttpd:
    """nghttp2's server on files of ``directory``, which has one called ``small``."""

    def __init__(self, program: str, directory: Path) -> None:
        self.directory = directory
        (directory / "small").write_bytes(b"small")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._child = subprocess.Popen(
            [program, "--no-tls", "-a", "127.0.0.1", "-d", str(directory), str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except ConnectionRefusedError:
                threading.Event().wait(0.02)
        raise TimeoutError("nghttpd does not listen")

    def stop(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()


@pytest.fixture
def nghttpd(tool: FindTool, stopping: Stopping, tmp_path: Path) -> Nghttpd:
    """A running nghttpd."""
    directory = tmp_path / "files"
    directory.mkdir()
    return stopping(Nghttpd(tool("nghttpd"), directory))


def _sha(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
