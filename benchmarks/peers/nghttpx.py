"""nghttpx, the proxy of nghttp2."""

from __future__ import annotations

from benchmarks.peers.base import Launch, Peer, Plan
from benchmarks.process import find_program
from benchmarks.tls.material import GROUP, Material


class Nghttpx(Peer):
    """No access log; up to 1,000 streams on a connection, as the others take them."""

    name = "nghttpx"
    package = "Debian: nghttp2-proxy"

    def find(self) -> str | None:
        return find_program("nghttpx")

    def launch(self, plan: Plan) -> Launch:
        return Launch(
            (
                self.program(),
                "--conf=/dev/null",
                f"--workers={plan.workers}",
                f"--frontend=127.0.0.1,{plan.port}{';no-tls' if plan.tls is None else ''}",
                *(
                    f"--backend=127.0.0.1,{port};;proto={'http/1.1' if plan.http1_out else 'h2'}"
                    for port in plan.backends
                ),
                "--frontend-http2-max-concurrent-streams=1000",
                "--frontend-http2-read-timeout=1h",
                "--backend-read-timeout=1h",
                "--accesslog-file=/dev/null",
                "--log-level=ERROR",
                *(() if plan.tls is None else _tls(plan.tls)),
            )
        )


def _tls(material: Material) -> tuple[str, ...]:
    """It staples nothing: it would ask the responder by a program of its own."""
    return (
        f"--tls-min-proto-version=TLSv1.{2 if material.tls12 else 3}",
        f"--ecdh-curves={GROUP}",
        "--no-ocsp",
        str(material.private_key),
        str(material.certificate),
    )
