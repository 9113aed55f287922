"""nginx: ``grpc_pass`` where HTTP/2 is spoken upstream, ``proxy_pass`` unbuffered for HTTP/1.1."""

from __future__ import annotations

from benchmarks.peers.base import Launch, Peer, Plan
from benchmarks.process import find_program
from benchmarks.tls.material import GROUP, Material

_CONFIG = """\
worker_processes {workers};
worker_rlimit_nofile 16384;
daemon off;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  keepalive_requests 100000000;
  keepalive_timeout 1h;
  http2_max_concurrent_streams 1000;
  client_max_body_size 0;
  upstream main {{
    least_conn;
    {servers}
    keepalive 256;
    keepalive_requests 100000000;
    keepalive_timeout 1h;
  }}
  server {{
    listen 127.0.0.1:{port}{ssl}{http2} backlog=4096{reuseport};
{tls}
    location / {{
{passing}
    }}
  }}
}}
"""


_GRPC = """\
      grpc_pass grpc://main;
      grpc_read_timeout 1h;
      grpc_send_timeout 1h;"""
_PROXY = """\
      proxy_pass http://main;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 1h;
      proxy_send_timeout 1h;"""


def _tls(material: Material) -> str:
    return f"""\
    ssl_certificate {material.certificate};
    ssl_certificate_key {material.private_key};
    ssl_protocols {"TLSv1.2 " if material.tls12 else ""}TLSv1.3;
    ssl_ecdh_curve {GROUP};
    ssl_session_tickets on;
    ssl_session_cache off;
    ssl_early_data on;
    ssl_stapling on;
    ssl_stapling_file {material.staple};"""


class Nginx(Peer):
    """Keep-alive to the backends on, access log off; one connection for each request upstream."""

    name = "nginx"
    package = "Debian: nginx"
    early_data = True
    version_option = "-v"

    def find(self) -> str | None:
        return find_program("nginx")

    def launch(self, plan: Plan) -> Launch:
        file = plan.directory / "nginx.conf"
        servers = " ".join(f"server 127.0.0.1:{port};" for port in plan.backends)
        file.write_text(
            _CONFIG.format(
                workers=plan.workers,
                directory=plan.directory,
                servers=servers,
                port=plan.port,
                http2="" if plan.http1_in else " http2",
                ssl="" if plan.tls is None else " ssl",
                tls="" if plan.tls is None else _tls(plan.tls),
                passing=_PROXY if plan.http1_out else _GRPC,
                reuseport=" reuseport" if plan.workers > 1 else "",
            )
        )
        return Launch((self.program(), "-c", str(file), "-p", str(plan.directory)))
