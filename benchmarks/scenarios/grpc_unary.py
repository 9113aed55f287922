"""gRPC calls with one message each way: HEADERS, DATA and trailers on both sides."""

from __future__ import annotations

from benchmarks.backends import GRPC_PATH
from benchmarks.harness import Harness, Results
from benchmarks.load import Load, Shape
from benchmarks.peers import INTERPRETED
from benchmarks.scenarios.base import REQUESTS, Scenario

SHAPE = Shape(10, 10, 12_000)


def run(harness: Harness) -> Results:
    """64 bytes up, 64 bytes down."""
    results = Results()
    peers = [peer for peer in harness.options.peers if peer.name != INTERPRETED]
    call = Load(
        SHAPE,
        GRPC_PATH,
        body=harness.files / "message",
        headers=("content-type: application/grpc", "te: trailers"),
    )
    with (
        harness.nghttpds() as ports,
        harness.proxies(results, "start", ports, peers) as proxies,
    ):
        harness.request_rounds(results, SHAPE.label, proxies, call)
    return results


SCENARIO = Scenario("grpc-unary", "gRPC calls, 64 bytes each way", REQUESTS, run)
