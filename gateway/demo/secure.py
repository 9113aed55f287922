"""The demo's TLS: certificates of ``gateway certs``, a responder, and visits that are timed."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from gateway.demo.traffic import Record
from gateway.tls.certificate import read_chain
from gateway.tls.channel import ChannelError
from gateway.tls.client import ClientContext, ClientSettings

VISITS = 20
TIMEOUT_S = 15.0

CONFIG = """\
[[listeners]]
address = "{address}"
tls = "edge"

[tls.edge]
early_data = "safe"

[[tls.edge.certificates]]
certificate = "{directory}/edge.pem"
private_key = "{directory}/edge.key"
ocsp = "fetch"
"""

BY_HAND = """
  curl --cacert {directory}/ca.pem --cert-status -i https://{address}/hello

  openssl s_client -connect {address} -CAfile {directory}/ca.pem -alpn http/1.1 \\
    -status -sess_out /tmp/session   # type GET /hello HTTP/1.1, host: a, and an empty line
  printf 'GET /hello HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n' > /tmp/request
  openssl s_client -connect {address} -CAfile {directory}/ca.pem -alpn http/1.1 \\
    -sess_in /tmp/session -early_data /tmp/request -ign_eof < /dev/null

  {python} -m gateway ocsp status -c {config}
"""


def make_certificates(directory: Path, responder_port: int) -> None:
    """What a person does who tries it out. Raises OSError, subprocess.CalledProcessError."""
    command = [sys.executable, "-m", "gateway", "certs", "--directory", str(directory)]
    url = f"http://127.0.0.1:{responder_port}/"
    subprocess.run([*command, "--ocsp-url", url], check=True, capture_output=True)


def responder_command(directory: Path, port: int) -> list[str]:
    """How the OCSP responder is started."""
    address = f"127.0.0.1:{port}"
    options = ["--directory", str(directory), "--address", address]
    return [sys.executable, "-m", "gateway", "certs", "responder", *options]


def visit(port: int, ca_file: Path) -> list[Record]:
    """Connections with one request each: half of them new to the gateway, with a staple that is
    checked, half of them resumed."""
    settings = ClientSettings(
        protocols=(b"http/1.1",), ca=tuple(read_chain(str(ca_file))), require_staple=True
    )
    context = ClientContext(settings, lambda: datetime.now(UTC))
    records = []
    ticket = None
    for number in range(VISITS):
        resume = number % 2 == 1
        record = Record("tls", "resumed" if resume else "full", "")
        try:
            ticket = _visit(context, port, ticket if resume else None, record)
        except (ChannelError, OSError) as error:
            record.wrong = str(error) or type(error).__name__
        records.append(record)
    return records


def _visit(context: ClientContext, port: int, ticket: object, record: Record) -> object:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = context.session("localhost", ticket)  # type: ignore[arg-type]
        sock.sendall(session.outgoing())
        while not session.established:
            session.receive(sock.recv(65_536))
            sock.sendall(session.outgoing())
        sock.sendall(session.seal(b"GET /hello HTTP/1.1\r\nhost: localhost\r\n\r\n"))
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = sock.recv(65_536)
            if not data:
                raise OSError("closed before the response was whole")
            answer += session.receive(data)
        record.total_s = record.first_token_s = time.monotonic() - began
        if not answer.startswith(b"HTTP/1.1 200"):
            record.wrong = f"answered {answer[:40]!r}"
        if session.resumed != (ticket is not None):
            record.wrong = "the session was not resumed"
        fresh = session.ticket()
        sock.sendall(session.close())
        return fresh
