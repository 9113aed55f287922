"""A cluster's configuration becomes its policy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import get_args

import pytest

from gateway.balance import (
    HASH_FALLBACKS,
    POLICIES,
    Endpoint,
    LeastConnections,
    PickRequest,
    RandomChoice,
    RingHash,
    RoundRobin,
    make_policy,
)
from gateway.config import models
from gateway.errors import ConfigError
from gateway.head import RequestHead


@dataclass
class Cluster:
    policy: str = "ring_hash"
    hash_on: str | None = "header:k"
    hash_fallback: str = "random"
    virtual_nodes: int = 160


def request(client: bytes) -> PickRequest:
    return PickRequest(RequestHead(b"GET", b"http", b"a", b"/", ()), client)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("least_connections", LeastConnections),
        ("ring_hash", RingHash),
        ("round_robin", RoundRobin),
        ("random", RandomChoice),
    ],
)
def test_policies_by_name(name: str, kind: type) -> None:
    policy = make_policy(Cluster(policy=name))
    assert isinstance(policy, kind)
    only = Endpoint("a", None)
    policy.update([only])
    assert policy.pick(request(b"10.0.0.9")) is only


def test_the_names_are_those_of_the_configuration() -> None:
    assert set(POLICIES) == set(get_args(models.PolicyName))
    assert set(HASH_FALLBACKS) == set(get_args(models.HashFallback))


@pytest.mark.parametrize("fallback", HASH_FALLBACKS)
def test_what_becomes_of_requests_without_a_key(fallback: str) -> None:
    policy = make_policy(Cluster(hash_fallback=fallback), Random(1))
    members = [Endpoint(f"e{i}", None) for i in range(4)]
    policy.update(members)
    of_one_client = Counter(policy.pick(request(b"10.0.0.9")) for _ in range(400))
    without_address = Counter(policy.pick(request(b"")) for _ in range(400))
    if fallback == "reject":
        assert of_one_client == without_address == {None: 400}
    elif fallback == "client":
        assert len(of_one_client) == 1
        assert None not in of_one_client
        assert set(without_address) == set(members)
    elif fallback == "round_robin":
        assert set(of_one_client.values()) == {100}
    else:
        assert set(of_one_client) == set(members)
        assert set(of_one_client.values()) != {100}


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (Cluster(policy="fastest"), "policy: 'fastest' is none of least_connections"),
        (Cluster(hash_on=None), "hash_on: required"),
        (Cluster(hash_on="session"), "hash_on: 'session' is none of header:NAME"),
        (Cluster(hash_fallback="guess"), "hash_fallback: 'guess' is none of random"),
    ],
)
def test_errors_name_the_key(cluster: Cluster, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_policy(cluster)
