"""Consistent hashing: who gets which keys, and which keys move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.balance import Endpoint, HashKey, PickRequest, RandomChoice, RingHash
from gateway.balance.ring_hash import MAX_POINTS, points_by_key
from gateway.head import RequestHead

KEYS = [b"session-%d" % i for i in range(20_000)]


def request(key: bytes | None, client: bytes = b"") -> PickRequest:
    fields = () if key is None else ((b"k", key),)
    return PickRequest(RequestHead(b"GET", b"http", b"a", b"/", fields), client)


REQUESTS = [request(key) for key in KEYS]


def endpoints(n: int, weight: int = 100) -> list[Endpoint]:
    return [Endpoint(f"10.0.0.{i}:9001", None, weight) for i in range(n)]


def ring(members: Sequence[Endpoint], virtual_nodes: int = 160) -> RingHash:
    policy = RingHash(HashKey("header:k"), virtual_nodes)
    policy.update(members)
    return policy


def owners(policy: RingHash, tried: Sequence[Endpoint] = ()) -> list[Endpoint]:
    picked = [policy.pick(one, tried) for one in REQUESTS]
    assert None not in picked
    return [endpoint for endpoint in picked if endpoint is not None]


def shares(picked: Iterable[Endpoint]) -> dict[str, float]:
    counts = Counter(endpoint.key for endpoint in picked)
    return {key: count / len(KEYS) for key, count in counts.items()}


def moved(before: list[Endpoint], after: list[Endpoint]) -> float:
    pairs = zip(before, after, strict=True)
    return sum(a.key != b.key for a, b in pairs) / len(KEYS)


def test_the_ring_is_the_one_of_uhashring() -> None:
    policy = ring([*endpoints(5), Endpoint("heavy", None, 250)])
    for key, one in zip(KEYS, REQUESTS, strict=True):
        picked = policy.pick(one)
        assert picked is not None
        assert picked.key == policy.ring.get_node(key)


def test_keys_go_where_they_went_in_other_processes_and_versions() -> None:
    policy = ring(endpoints(4))
    picked = [policy.pick(one) for one in REQUESTS[:12]]
    # A change of these moves every session of every user at the upgrade.
    assert [endpoint.key[7] for endpoint in picked if endpoint] == list("110312031101")


def test_every_endpoint_gets_about_its_share() -> None:
    for share in shares(owners(ring(endpoints(10)))).values():
        assert 0.07 < share < 0.13


def test_weights_are_shares() -> None:
    members = [Endpoint("a", None, 100), Endpoint("b", None, 200), Endpoint("c", None, 300)]
    got = shares(owners(ring(members)))
    for key, share in (("a", 1 / 6), ("b", 2 / 6), ("c", 3 / 6)):
        assert got[key] == pytest.approx(share, rel=0.2)


def test_small_weights_count_from_one() -> None:
    assert points_by_key({"a": 1, "b": 3, "c": 0}, 160) == {"a": 160, "b": 480}
    assert points_by_key({"a": 1, "b": 100, "c": 250}, 160) == {"a": 2, "b": 160, "c": 400}


def test_points_are_limited_and_keep_their_proportions() -> None:
    weights = {f"e{i}": 1000 if i % 2 else 500 for i in range(1000)}
    points = points_by_key(weights, 10_000)
    assert MAX_POINTS / 4 < sum(points.values()) <= MAX_POINTS
    assert points["e1"] == pytest.approx(2 * points["e0"], abs=1)
    assert points_by_key({}, 160) == {}


@pytest.mark.parametrize("n", [2, 5, 16])
def test_one_more_endpoint_takes_about_one_share_and_nothing_else_moves(n: int) -> None:
    members = endpoints(n)
    policy = ring(members)
    before = owners(policy)
    new = Endpoint("10.0.1.1:9001", None)
    policy.update([*members, new])
    after = owners(policy)
    assert moved(before, after) == pytest.approx(1 / (n + 1), rel=0.3)
    assert all(b is new for a, b in zip(before, after, strict=True) if a is not b)
    # It takes them from all the others alike.
    losers = Counter(a.key for a, b in zip(before, after, strict=True) if a is not b)
    assert len(losers) == n
    assert max(losers.values()) < 3 * sum(losers.values()) / n


@pytest.mark.parametrize("n", [2, 5, 16])
def test_one_endpoint_less_moves_its_own_keys_only(n: int) -> None:
    members = endpoints(n)
    policy = ring(members)
    before = owners(policy)
    policy.update(members[1:])
    after = owners(policy)
    assert moved(before, after) == pytest.approx(1 / n, rel=0.3)
    assert all(a is members[0] for a, b in zip(before, after, strict=True) if a is not b)
    policy.update(members)
    assert owners(policy) == before


def test_a_weight_that_grows_only_takes() -> None:
    members = endpoints(10)
    policy = ring(members)
    before = owners(policy)
    members[3].weight = 200
    policy.update(members)
    after = owners(policy)
    assert moved(before, after) == pytest.approx(2 / 11 - 1 / 10, rel=0.4)
    assert all(b is members[3] for a, b in zip(before, after, strict=True) if a is not b)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 11), st.sampled_from([0, 50, 100, 200]), max_size=12),
        min_size=1,
        max_size=4,
    )
)
def test_the_ring_does_not_depend_on_history_or_order(history: list[dict[int, int]]) -> None:
    policy = RingHash(HashKey("header:k"), 20)
    members: list[Endpoint] = []
    for weights in history:
        members = [Endpoint(f"e{i}", None, weight) for i, weight in weights.items()]
        policy.update(members)
    fresh = ring(members[::-1], 20)
    assert policy.ring.get_points() == fresh.ring.get_points()
    for one in REQUESTS[:50]:
        assert policy.pick(one) is fresh.pick(one)


def test_the_newest_object_of_a_key_is_picked() -> None:
    policy = ring(endpoints(3))
    again = endpoints(3)
    policy.update(again)
    assert set(owners(policy)) == set(again)


@pytest.mark.parametrize("how", ["unavailable", "draining", "tried", "weight 0"])
def test_keys_of_an_endpoint_that_can_not_be_used_spread_over_all_others(how: str) -> None:
    n = 8
    members = endpoints(n)
    policy = ring(members)
    before = owners(policy)
    out = members[2]
    tried: tuple[Endpoint, ...] = ()
    if how == "unavailable":
        out.available = False
    elif how == "draining":
        out.draining = True
    elif how == "tried":
        tried = (out,)
    else:
        out.weight = 0
    after = owners(policy, tried)
    assert all(a is out for a, b in zip(before, after, strict=True) if a is not b)
    takers = Counter(b.key for a, b in zip(before, after, strict=True) if a is out)
    orphans = sum(takers.values())
    assert len(takers) == n - 1
    # An even spread is a seventh for each; piled on one neighbour it would be all.
    assert max(takers.values()) < 0.3 * orphans
    assert min(takers.values()) > 0.04 * orphans
    out.available, out.draining, out.weight = True, False, 100
    assert owners(policy) == before


def test_keys_spread_while_half_the_endpoints_are_away() -> None:
    members = endpoints(10)
    policy = ring(members)
    for endpoint in members[::2]:
        endpoint.available = False
    got = shares(owners(policy))
    assert set(got) == {endpoint.key for endpoint in members[1::2]}
    assert max(got.values()) < 0.3


def test_the_next_best_choice_is_another_each_time_until_none_is_left() -> None:
    members = endpoints(6)
    policy = ring(members)
    for one in REQUESTS[:50]:
        tried: list[Endpoint] = []
        while (endpoint := policy.pick(one, tried)) is not None:
            assert endpoint not in tried
            tried.append(endpoint)
        assert set(tried) == set(members)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_few_left_of_many(left: int) -> None:
    members = endpoints(200)
    policy = ring(members, 20)
    for endpoint in members[left:]:
        endpoint.available = False
    picked = {policy.pick(one) for one in REQUESTS[:500]}
    assert picked == (set(members[:left]) if left else {None})


def test_keys_spread_over_light_endpoints_while_the_heavy_one_is_away() -> None:
    """Most walks are long here: its points stand next to each other."""
    members = [Endpoint("heavy", None, 1000), *endpoints(2)]
    policy = ring(members)
    members[0].available = False
    got = shares(owners(policy))
    assert len(got) == 2
    assert max(got.values()) < 0.6


def test_no_endpoints() -> None:
    assert ring([]).pick(REQUESTS[0]) is None
    policy = ring(endpoints(2))
    policy.update([])
    assert policy.pick(REQUESTS[0]) is None
    policy.update([Endpoint("a", None, 0)])
    assert policy.pick(REQUESTS[0]) is None


def test_without_a_key_the_fallback_picks_and_knows_the_endpoints_and_the_tried() -> None:
    members = endpoints(4)
    policy = RingHash(HashKey("header:k"), 160, RandomChoice(Random(1)))
    policy.update(members)
    picked = Counter(policy.pick(request(None)) for _ in range(4000))
    assert set(picked) == set(members)
    assert max(picked.values()) < 1200
    assert policy.pick(request(None), members[:3]) is members[3]


def test_without_a_key_and_fallback_nothing_is_picked() -> None:
    policy = ring(endpoints(4))
    assert policy.pick(request(None)) is None
    assert policy.pick(request(b"")) is None


def test_a_fallback_key_is_hashed_like_the_key() -> None:
    policy = RingHash(HashKey("header:k"), 160, None, HashKey("client"))
    policy.update(endpoints(4))
    assert policy.pick(request(None, b"10.1.2.3")) is policy.pick(request(b"10.1.2.3"))
    assert policy.pick(request(None, b"")) is None


def test_virtual_nodes_at_least_one() -> None:
    with pytest.raises(ValueError, match="virtual_nodes"):
        RingHash(HashKey("path"), 0)
