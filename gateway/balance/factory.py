"""From a cluster's configuration to its policy."""

from __future__ import annotations

from random import Random
from typing import Final, Protocol

from gateway.balance.hash_key import HashKey
from gateway.balance.least_connections import LeastConnections
from gateway.balance.policy import Policy
from gateway.balance.random_choice import RandomChoice
from gateway.balance.ring_hash import RingHash
from gateway.balance.round_robin import RoundRobin
from gateway.errors import ConfigError

POLICIES: Final = ("least_connections", "ring_hash", "round_robin", "random")
"""The values of ``policy``."""

HASH_FALLBACKS: Final = ("random", "round_robin", "client", "reject")
"""The values of ``hash_fallback``: what becomes of a request that has no ``hash_on`` value.

``client`` hashes its client's address instead, and picks at random if it has none either (a unix
socket). ``reject`` picks nothing.
"""


class ClusterConfig(Protocol):
    """What a policy is made from; :class:`gateway.config.Cluster` is one."""

    @property
    def policy(self) -> str: ...

    @property
    def hash_on(self) -> str | None: ...

    @property
    def hash_fallback(self) -> str: ...

    @property
    def virtual_nodes(self) -> int: ...


def make_policy(cluster: ClusterConfig, rng: Random | None = None) -> Policy:
    """The policy of ``cluster``, still without endpoints. Raises ConfigError naming the key.

    To be called in the worker: policies of different workers must not draw the same numbers.
    ``rng`` is for tests.
    """
    if cluster.policy == "least_connections":
        return LeastConnections(rng)
    if cluster.policy == "round_robin":
        return RoundRobin(rng)
    if cluster.policy == "random":
        return RandomChoice(rng)
    if cluster.policy == "ring_hash":
        return _make_ring_hash(cluster, rng)
    raise ConfigError(f"policy: {cluster.policy!r} is none of {', '.join(POLICIES)}")


def _make_ring_hash(cluster: ClusterConfig, rng: Random | None) -> Policy:
    if cluster.hash_on is None:
        raise ConfigError("hash_on: required by policy ring_hash")
    try:
        key = HashKey(cluster.hash_on)
    except ValueError as error:
        raise ConfigError(f"hash_on: {error}") from None
    fallback: Policy | None
    fallback_key: HashKey | None = None
    if cluster.hash_fallback == "random":
        fallback = RandomChoice(rng)
    elif cluster.hash_fallback == "round_robin":
        fallback = RoundRobin(rng)
    elif cluster.hash_fallback == "client":
        fallback = RandomChoice(rng)
        fallback_key = HashKey("client")
    elif cluster.hash_fallback == "reject":
        fallback = None
    else:
        raise ConfigError(
            f"hash_fallback: {cluster.hash_fallback!r} is none of {', '.join(HASH_FALLBACKS)}"
        )
    return RingHash(key, cluster.virtual_nodes, fallback, fallback_key)
