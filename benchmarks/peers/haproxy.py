"""HAProxy."""

from __future__ import annotations

from benchmarks.peers.base import Launch, Peer, Plan
from benchmarks.process import find_program
from benchmarks.tls.material import GROUP, Material

_CONFIG = """\
global
  maxconn 8000
  nbthread {workers}
  tune.h2.max-concurrent-streams 1000
defaults
  mode http
  timeout client 1h
  timeout server 1h
  timeout connect 5s
  timeout http-keep-alive 1h
{no_delay}frontend main
  bind 127.0.0.1:{port}{proto} backlog 4096{tls}
{reason}  default_backend main
backend main
  balance leastconn
  http-reuse always
{servers}
"""


# Without it HAProxy lets the kernel wait for more: events come 100 ms late, and so does the end of
# some responses that come over HTTP/2 and go out over HTTP/1.1.
_NO_DELAY = "  option http-no-delay\n"

# A response of HTTP/2 has no reason phrase, HAProxy makes none up, and h2load counts the status
# of HTTP/1.1 only where there is one.
_REASON = "  http-response set-status 200 reason OK if { status 200 }\n"


def _tls(material: Material, http1: bool) -> str:
    return (
        f" ssl crt {material.combined} alpn {'http/1.1' if http1 else 'h2'}"
        f" ssl-min-ver TLSv1.{2 if material.tls12 else 3} curves {GROUP} allow-0rtt"
    )


class Haproxy(Peer):
    """One thread for each worker, connections reused always, no log; no delays for HTTP/1.1."""

    name = "haproxy"
    package = "Debian: haproxy"
    early_data = True
    version_option = "-v"

    def find(self) -> str | None:
        return find_program("haproxy")

    def launch(self, plan: Plan) -> Launch:
        file = plan.directory / "haproxy.cfg"
        servers = "\n".join(
            f"  server s{index} 127.0.0.1:{port}{'' if plan.http1_out else ' proto h2'}"
            for index, port in enumerate(plan.backends)
        )
        file.write_text(
            _CONFIG.format(
                workers=plan.workers,
                port=plan.port,
                servers=servers,
                proto="" if plan.http1_in or plan.tls is not None else " proto h2",
                tls="" if plan.tls is None else _tls(plan.tls, plan.http1_in),
                no_delay=_NO_DELAY if plan.http1_in or plan.http1_out else "",
                reason=_REASON if plan.http1_in and not plan.http1_out else "",
            )
        )
        return Launch((self.program(), "-db", "-f", str(file)))
