"""Requests for 1 KiB: HTTP/2 over TLS 1.3 from the clients, cleartext HTTP/2 to the backends.

As ``unary-1k``, and POST of 1 KiB as well. The handshakes are within what is measured: 64 in
20,000 requests add about 1 us to each.
"""

from __future__ import annotations

from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.scenarios.base import REQUESTS, Scenario

SHAPES = (Shape(10, 10, 20_000), Shape(64, 1, 20_000))


def run(harness: Harness, shapes: tuple[Shape, ...] = SHAPES) -> Results:
    """Each shape in turn, GET and then POST, all proxies running throughout."""
    results = Results()
    tls = harness.material()
    with (
        harness.nghttpds() as ports,
        harness.proxies(results, "start", ports, harness.options.peers, tls=tls) as proxies,
    ):
        for shape in shapes:
            for method, body in (("GET", None), ("POST", harness.files / "1k")):
                wanted = Load(shape, "/1k", body=body, tls=True)
                harness.request_rounds(results, f"{method} {shape.label}", proxies, wanted)
    return results


SCENARIO = Scenario("tls-1k", "Requests for 1 KiB over TLS 1.3", REQUESTS, run)
