"""Which endpoint a request goes to: one file per policy behind :class:`Policy`.

Level 1: no sockets, no clocks. Health, dialling and discovery tell the policies about endpoints
through :class:`Endpoint` and :meth:`Policy.update`.
"""

from __future__ import annotations

from gateway.balance.endpoint import Counter, Endpoint
from gateway.balance.factory import HASH_FALLBACKS, POLICIES, ClusterConfig, make_policy
from gateway.balance.hash_key import HashKey
from gateway.balance.least_connections import LeastConnections
from gateway.balance.policy import Policy
from gateway.balance.random_choice import RandomChoice
from gateway.balance.request import PickRequest
from gateway.balance.ring_hash import RingHash
from gateway.balance.round_robin import RoundRobin

__all__ = [
    "HASH_FALLBACKS",
    "POLICIES",
    "ClusterConfig",
    "Counter",
    "Endpoint",
    "HashKey",
    "LeastConnections",
    "PickRequest",
    "Policy",
    "RandomChoice",
    "RingHash",
    "RoundRobin",
    "make_policy",
]
