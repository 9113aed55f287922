"""The picks of each policy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from random import Random

from benchmarks.micro.samples import BROWSER, MANY
from benchmarks.micro.timing import Operation
from gateway.balance import POLICIES, Endpoint, PickRequest, make_policy
from gateway.wire.fields import parse_request

ENDPOINTS = (10, 100, 1000)


@dataclass(frozen=True)
class _Cluster:
    """As much of a configuration as a policy is made from; the numbers are its defaults."""

    policy: str
    hash_on: str | None = "header:x-session-id"
    hash_fallback: str = "random"
    virtual_nodes: int = 160


def operations() -> dict[str, Operation]:
    """``POLICY N`` for every policy and count of endpoints."""
    return {
        f"{name} {count}": _picking(name, count) for name in sorted(POLICIES) for count in ENDPOINTS
    }


def few() -> dict[str, Operation]:
    """Of 100 endpoints only, for the table of operations."""
    return {f"pick, {name}, 100": _picking(name, 100) for name in sorted(POLICIES)}


def _picking(name: str, count: int) -> Operation:
    policy = make_policy(_Cluster(name), Random(1))
    policy.update([Endpoint(f"10.0.{i // 256}.{i % 256}:9000", None) for i in range(count)])
    requests = [
        PickRequest(parse_request((*BROWSER, (b"x-session-id", b"session-%d" % i))), b"10.9.8.7")
        for i in range(MANY)
    ]

    def pick(times: int) -> None:
        for request in islice(cycle(requests), times):
            endpoint = policy.pick(request)
            if endpoint is None:
                raise RuntimeError("nothing was picked")
            endpoint.acquire()
            endpoint.release()

    return pick
