"""OCSP over HTTP (RFC 6960 appendix A): a responder that takes its time, and how it is asked.

``python -m benchmarks.tls.lookup PORT RESPONSE.der``. The answer is always the same one; the path
says after how many microseconds it comes.
"""

from __future__ import annotations

import argparse
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.process import pause

_TIMEOUT_S = 10.0
_CHUNK = 65_536


def ask(sock: socket.socket, question: bytes, delay_s: float = 0.0) -> bytes:
    """The answer to ``question``, over a new connection, which is closed then.

    ConnectionError unless it is a 200.
    """
    head = (
        f"POST /{round(delay_s * 1e6)} HTTP/1.0\r\n"
        "Content-Type: application/ocsp-request\r\n"
        f"Content-Length: {len(question)}\r\n\r\n"
    )
    with sock:
        sock.settimeout(_TIMEOUT_S)
        sock.sendall(head.encode() + question)
        received = b""
        while data := sock.recv(_CHUNK):
            received += data
            answer = _whole(received)  # the end of the connection is not waited for
            if answer is not None:
                return answer
    raise ConnectionError(f"the responder answered {received[:100]!r}")


def _whole(received: bytes) -> bytes | None:
    """The body, once all of it is there."""
    head, end, body = received.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    if not end or line.split()[1:2] != [b"200"]:
        return None
    for field in fields:
        name, _, value = field.partition(b":")
        if name.lower() == b"content-length":
            return body if len(body) >= int(value) else None
    return None


class Responder(ThreadingHTTPServer):
    """Answers everything with ``answer``."""

    daemon_threads = True

    def __init__(self, port: int, answer: bytes) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer


class _Handler(BaseHTTPRequestHandler):
    server: Responder
    disable_nagle_algorithm = True
    timeout = _TIMEOUT_S
    wbufsize = -1  # head and body leave together

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        pause(int(self.path.lstrip("/")) / 1e6)
        self.send_response(200)
        self.send_header("Content-Type", "application/ocsp-response")
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: this is no server that anybody watches."""


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("answer", type=Path)
    options = parser.parse_args()
    with Responder(options.port, options.answer.read_bytes()) as responder:
        responder.serve_forever()


if __name__ == "__main__":
    main()
