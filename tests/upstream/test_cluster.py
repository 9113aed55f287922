"""Clusters: picking, and replacing their endpoints at run time."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Any

from gateway import config
from gateway.balance import Endpoint, PickRequest
from gateway.head import RequestHead
from gateway.upstream.cluster import Cluster
from tests.rig import Backend, Rig
from tests.upstream.asking import ask

HEAD = RequestHead(b"GET", b"http", b"a.test", b"/", ())
REQUEST = PickRequest(HEAD, b"192.0.2.7")


def endpoints(*addresses: str) -> tuple[config.ClusterEndpoint, ...]:
    return tuple(config.ClusterEndpoint(address=address) for address in addresses)


def keys(cluster: Cluster) -> list[str]:
    return [endpoint.key for endpoint in cluster.pools]


def picks(rig: Rig, cluster: Cluster, number: int, tried: Any = ()) -> dict[str, int]:
    tally: dict[str, int] = Tally()
    for _ in range(number):
        pool = cluster.pick(REQUEST, tried, rig.reactor.now)
        assert pool is not None
        tally[pool.endpoint.key] += 1
    return dict(tally)


ONE, TWO, THREE = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"


def test_picks_by_its_policy(rig: Rig) -> None:
    cluster = rig.cluster(ONE, TWO)
    assert picks(rig, cluster, 10) == {ONE: 5, TWO: 5}
    (first, second) = cluster.pools
    assert picks(rig, cluster, 4, (first,)) == {TWO: 4}
    assert cluster.pick(REQUEST, (first, second), rig.reactor.now) is None


def test_unavailable_endpoints_are_passed_over(rig: Rig) -> None:
    cluster = rig.cluster(ONE, TWO)
    first, _ = cluster.pools
    first.available = False
    assert picks(rig, cluster, 4) == {TWO: 4}


def test_all_unavailable_waits_for_the_one_that_is_tried_next(rig: Rig) -> None:
    cluster = rig.cluster(ONE, TWO, THREE, pending_timeout_s=5.0)
    now = rig.reactor.now
    for (endpoint, pool), wait in zip(cluster.pools.items(), (4.0, 2.0, 6.0), strict=True):
        endpoint.available = False
        pool.retry_at = now + wait
        pool.last_error = f"{endpoint.key}: Connection refused"
    assert picks(rig, cluster, 1) == {TWO: 1}
    one, two, _ = cluster.pools
    assert picks(rig, cluster, 1, (two,)) == {ONE: 1}
    # The third's next dial is later than a request may wait.
    assert cluster.pick(REQUEST, (one, two), now) is None
    assert cluster.why_unavailable() == (
        f"no endpoint of cluster c is available; last error: {ONE}: Connection refused"
    )
    for pool in cluster.pools.values():
        pool.retry_at = 0.0


def test_why_unavailable_without_an_error(rig: Rig) -> None:
    assert rig.cluster().why_unavailable() == "no endpoint of cluster c is available"


def test_update_adds_removes_and_keeps(rig: Rig, backend: Backend) -> None:
    other = Backend(rig)
    cluster = rig.cluster(backend.address)
    (kept,) = cluster.pools.values()
    kept._dial()
    rig.until(lambda: kept.connections)
    connection = kept.connections[0]
    cluster.update(endpoints(backend.address, other.address))
    rig.resolve(cluster)
    assert keys(cluster) == [backend.address, other.address]
    assert cluster.pools[kept.endpoint] is kept
    assert picks(rig, cluster, 10) == {backend.address: 5, other.address: 5}
    cluster.update(endpoints(other.address))
    assert keys(cluster) == [other.address]
    assert picks(rig, cluster, 3) == {other.address: 3}
    assert connection.retiring
    rig.until(lambda: not kept.retiring, "the idle connection goes")
    assert backend.peers[0].goaways == [(0, 0)]


def test_an_endpoint_that_was_added_is_usable_at_once(rig: Rig, backend: Backend) -> None:
    """Its address is known: there is no look-up to wait for."""
    cluster = rig.cluster()
    cluster.update(endpoints(backend.address))
    (pool,) = cluster.pools.values()
    (asker,) = ask(pool, 1)
    assert asker.failure is None
    rig.until(lambda: asker.stream)
    asker.cancel()


def test_update_changes_weights(rig: Rig) -> None:
    cluster = rig.cluster(ONE, TWO)
    cluster.update(
        (
            config.ClusterEndpoint(address=ONE, weight=30),
            config.ClusterEndpoint(address=TWO, weight=10),
        )
    )
    assert picks(rig, cluster, 40) == {ONE: 30, TWO: 10}


def test_an_endpoint_that_comes_back_is_new(rig: Rig) -> None:
    """Streams on the old one go on there; both count in the same place."""
    cluster = rig.cluster(ONE)
    (old,) = cluster.pools
    old.acquire()
    cluster.update(())
    assert old.draining
    assert cluster.pick(REQUEST, (), rig.reactor.now) is None
    cluster.update(endpoints(ONE))
    (new,) = cluster.pools
    assert new is not old
    assert new.usable
    assert new.in_flight == old.in_flight == 1
    old.release()
    assert new.in_flight == 0


def test_slots_of_removed_endpoints_are_freed(rig: Rig) -> None:
    cluster = rig.cluster(ONE)
    for number in range(200):  # the memory has 64 slots
        cluster.update(endpoints(f"127.0.0.1:{1000 + number}"))
    assert rig.shared.slots_in_use() == 1


def test_clusters_count_apart(rig: Rig) -> None:
    """The same address in two clusters is two endpoints."""
    (one,) = rig.cluster(ONE, name="one").pools
    (two,) = rig.cluster(ONE, name="two").pools
    one.acquire()
    assert (one.in_flight, two.in_flight) == (1, 0)
    one.release()


def test_prepare_opens_min_connections(rig: Rig) -> None:
    backends = [Backend(rig) for _ in range(3)]
    cluster = rig.cluster(*(b.address for b in backends), min_connections=2)
    cluster.prepare()
    rig.until(lambda: all(len(p.connections) == 2 for p in cluster.pools.values()))
    rig.settle()
    assert [len(b.peers) for b in backends] == [2, 2, 2]


def test_close_retires_everything(rig: Rig, backend: Backend) -> None:
    cluster = rig.cluster(backend.address, min_connections=1)
    (pool,) = cluster.pools.values()
    cluster.prepare()
    rig.until(lambda: pool.connections)
    cluster.close()
    assert cluster.pools == {}
    assert pool.connections == []
    rig.until(lambda: not pool.retiring)
    assert rig.shared.slots_in_use() == 0


def test_endpoints_are_named_by_their_address(rig: Rig) -> None:
    cluster = rig.cluster("127.0.0.1:80", "[::1]:80", "unix:/run/x.sock")
    assert keys(cluster) == ["127.0.0.1:80", "[::1]:80", "unix:/run/x.sock"]
    assert all(isinstance(endpoint, Endpoint) for endpoint in cluster.pools)
