"""The proxies of the race, one file each."""

from __future__ import annotations

from typing import Final

from benchmarks.peers.base import Launch, Peer, Plan
from benchmarks.peers.envoy import Envoy
from benchmarks.peers.gateway import Gateway
from benchmarks.peers.gateway_interpreted import GatewayInterpreted
from benchmarks.peers.haproxy import Haproxy
from benchmarks.peers.nghttpx import Nghttpx
from benchmarks.peers.nginx import Nginx

GATEWAY: Final = Gateway.name
INTERPRETED: Final = GatewayInterpreted.name

PEERS: Final[dict[str, Peer]] = {
    peer.name: peer
    for peer in (Gateway(), GatewayInterpreted(), Envoy(), Nginx(), Haproxy(), Nghttpx())
}
"""By name, in the order in which they are shown."""

__all__ = ["GATEWAY", "INTERPRETED", "PEERS", "Launch", "Peer", "Plan"]
