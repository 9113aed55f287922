"""Least connections, round robin, random: shares, fairness, and what all of them share."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.balance import (
    Endpoint,
    HashKey,
    LeastConnections,
    PickRequest,
    Policy,
    RandomChoice,
    RingHash,
    RoundRobin,
)
from gateway.head import RequestHead

REQUEST = PickRequest(RequestHead(b"GET", b"http", b"a", b"/", ()), b"10.0.0.9")


def endpoints(*weights: int) -> list[Endpoint]:
    return [Endpoint(f"e{i}", None, weight) for i, weight in enumerate(weights)]


def picks(policy: Policy, n: int) -> list[Endpoint]:
    picked = [policy.pick(REQUEST) for _ in range(n)]
    assert None not in picked
    return [endpoint for endpoint in picked if endpoint is not None]


def names(picked: list[Endpoint]) -> str:
    return "".join(endpoint.key[1:] for endpoint in picked)


MAKERS: dict[str, Callable[[], Policy]] = {
    "least_connections": lambda: LeastConnections(Random(1)),
    "ring_hash": lambda: RingHash(HashKey("client")),
    "ring_hash fallback": lambda: RingHash(HashKey("header:none"), 100, RandomChoice(Random(1))),
    "round_robin": lambda: RoundRobin(Random(1)),
    "random": lambda: RandomChoice(Random(1)),
}


@pytest.fixture(params=MAKERS)
def policy(request: pytest.FixtureRequest) -> Policy:
    return MAKERS[request.param]()


# What all policies share.


def test_nothing_to_pick_from(policy: Policy) -> None:
    assert policy.pick(REQUEST) is None
    policy.update([])
    assert policy.pick(REQUEST) is None


def test_only_what_can_be_used_is_picked(policy: Policy) -> None:
    members = endpoints(100, 100, 0, 100, 100)
    members[0].available = False
    members[1].draining = True
    policy.update(members)
    assert {policy.pick(REQUEST, members[3:4]) for _ in range(40)} == {members[4]}
    assert policy.pick(REQUEST, members[3:]) is None
    members[3].available = members[4].available = False
    assert policy.pick(REQUEST) is None
    members[0].available = True
    assert policy.pick(REQUEST) is members[0]


def test_each_retry_gets_another_until_none_is_left(policy: Policy) -> None:
    members = endpoints(100, 1, 50, 300)
    policy.update(members)
    tried: list[Endpoint] = []
    while (endpoint := policy.pick(REQUEST, tried)) is not None:
        assert endpoint not in tried
        tried.append(endpoint)
    assert set(tried) == set(members)


def test_any_collection_can_say_what_was_tried(policy: Policy) -> None:
    members = endpoints(100, 100)
    policy.update(members)
    for tried in ([members[0]], (members[0],), {members[0]}, {members[0]: 1}):
        assert policy.pick(REQUEST, tried) is members[1]


def test_an_endpoint_that_is_gone_is_not_picked_and_its_streams_finish(policy: Policy) -> None:
    members = endpoints(100, 100)
    policy.update(members)
    for endpoint in members:
        endpoint.acquire()
    policy.update(members[1:])
    assert {policy.pick(REQUEST) for _ in range(20)} == {members[1]}
    members[0].release()
    assert members[0].in_flight == 0
    policy.update(members)
    members[1].available = False
    assert policy.pick(REQUEST) is members[0]


def test_weight_zero_and_back(policy: Policy) -> None:
    members = endpoints(100, 100)
    policy.update(members)
    members[0].weight = 0
    assert {policy.pick(REQUEST) for _ in range(20)} == {members[1]}
    policy.update(members)
    assert {policy.pick(REQUEST) for _ in range(20)} == {members[1]}
    members[0].weight = 100
    members[1].weight = 0
    policy.update(members)
    assert {policy.pick(REQUEST) for _ in range(20)} == {members[0]}


def test_a_pick_counts_nothing(policy: Policy) -> None:
    members = endpoints(100, 100)
    policy.update(members)
    picks(policy, 10)
    assert [endpoint.in_flight for endpoint in members] == [0, 0]


@given(
    weights=st.lists(st.integers(0, 1000), max_size=8),
    data=st.data(),
    maker=st.sampled_from(sorted(MAKERS)),
)
def test_picks_something_if_and_only_if_something_can_be_used(
    weights: list[int], data: st.DataObject, maker: str
) -> None:
    policy = MAKERS[maker]()
    members = endpoints(*weights)
    policy.update(members)
    for endpoint in members:
        endpoint.available, endpoint.draining = data.draw(st.tuples(st.booleans(), st.booleans()))
    tried = [endpoint for endpoint in members if data.draw(st.booleans())]
    usable = [endpoint for endpoint in members if endpoint.usable and endpoint not in tried]
    for _ in range(5):
        picked = policy.pick(REQUEST, tried)
        assert (picked is None) == (not usable)
        assert picked is None or picked in usable


# Least connections.


def test_least_connections_levels_the_streams() -> None:
    members = endpoints(100, 100, 100, 100)
    policy = LeastConnections(Random(1))
    policy.update(members)
    for loads in range(1, 50):
        for _ in members:
            endpoint = policy.pick(REQUEST)
            assert endpoint is not None
            endpoint.acquire()
        assert [endpoint.in_flight for endpoint in members] == [loads] * 4


def test_least_connections_holds_streams_in_proportion_to_weights() -> None:
    members = endpoints(100, 200, 500)
    policy = LeastConnections(Random(1))
    policy.update(members)
    for _ in range(800):
        endpoint = policy.pick(REQUEST)
        assert endpoint is not None
        endpoint.acquire()
    assert [endpoint.in_flight for endpoint in members] == [100, 200, 500]


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**9)), min_size=1, max_size=12))
def test_least_connections_never_picks_a_heavier_loaded(states: list[tuple[int, int]]) -> None:
    class Fixed:
        index = 0

        def __init__(self, load: int) -> None:
            self.cells = memoryview(array("q", [load]))

    members = [Endpoint(f"e{i}", None, w, Fixed(load)) for i, (w, load) in enumerate(states)]
    policy = LeastConnections()
    policy.update(members)
    picked = policy.pick(REQUEST)
    assert picked is not None
    for other in members:
        assert picked.in_flight * other.weight <= other.in_flight * picked.weight


@pytest.mark.parametrize("busy", [(), (1,), (0, 1, 2)])
def test_least_connections_breaks_ties_evenly(busy: tuple[int, ...]) -> None:
    """Also where the tied are not neighbours, which a rotating start alone would not do."""
    members = endpoints(*[100] * 6)
    for i in busy:
        members[i].acquire()
    policy = LeastConnections(Random(1))
    policy.update(members)
    counts = Counter(picks(policy, 6000))
    idle = [endpoint for i, endpoint in enumerate(members) if i not in busy]
    assert set(counts) == set(idle)
    for count in counts.values():
        assert count == pytest.approx(6000 / len(idle), rel=0.12)


def test_least_connections_breaks_ties_by_weight() -> None:
    members = endpoints(100, 300)
    policy = LeastConnections(Random(1))
    policy.update(members)
    assert Counter(picks(policy, 4000))[members[1]] == pytest.approx(3000, rel=0.05)


def test_least_connections_of_two_workers_see_each_other() -> None:
    memory = memoryview(array("q", [0] * 8))  # four endpoints, two workers

    class Shared:
        def __init__(self, slot: int, worker: int) -> None:
            self.cells = memory[slot::4]
            self.index = worker

    policies = []
    for worker in range(2):
        policy = LeastConnections(Random(worker))
        policy.update([Endpoint(f"e{i}", None, 100, Shared(i, worker)) for i in range(4)])
        policies.append(policy)
    for n in range(40):
        endpoint = policies[n % 2].pick(REQUEST)
        assert endpoint is not None
        endpoint.acquire()
    assert [memory[i] + memory[4 + i] for i in range(4)] == [10] * 4


# Round robin.


def test_round_robin_is_the_sequence_of_nginx() -> None:
    policy = RoundRobin()
    policy.update(endpoints(5, 1, 1))
    assert sorted(names(picks(policy, 7))) == sorted("0000012")
    turns = names(picks(policy, 7))
    assert turns in ("0010200", "0020100")
    assert names(picks(policy, 14)) == turns * 2


def test_round_robin_of_equals_takes_turns() -> None:
    policy = RoundRobin()
    policy.update(endpoints(100, 100, 100))
    turns = names(picks(policy, 3))
    assert sorted(turns) == list("012")
    assert names(picks(policy, 30)) == turns * 10


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_round_robin_gives_each_exactly_its_weight(weights: list[int]) -> None:
    members = endpoints(*weights)
    policy = RoundRobin()
    policy.update(members)
    counts = Counter(picks(policy, 2 * sum(weights)))
    assert [counts[endpoint] for endpoint in members] == [2 * weight for weight in weights]


def test_round_robin_does_not_begin_with_the_same_in_every_worker() -> None:
    first: set[str] = set()
    for seed in range(50):
        policy = RoundRobin(Random(seed))
        policy.update(endpoints(100, 100, 100))
        first.update(names(picks(policy, 1)))
    assert first == set("012")


def test_round_robin_goes_on_where_it_was_after_an_update() -> None:
    """An update at every pick, as discovery may bring, must not favour anyone."""
    members = endpoints(100, 100, 100, 100)
    policy = RoundRobin(Random(1))
    counts: Counter[Endpoint] = Counter()
    for _ in range(100):
        policy.update(members)
        counts.update(picks(policy, 1))
    assert set(counts.values()) == {25}


def test_round_robin_forgets_turns_at_another_weight() -> None:
    members = endpoints(1000, 1000)
    policy = RoundRobin()
    policy.update(members)
    picks(policy, 1)
    for endpoint in members:
        endpoint.weight = 1
    policy.update(members)
    assert Counter(picks(policy, 4)) == {members[0]: 2, members[1]: 2}


def test_round_robin_spreads_evenly_while_one_is_away() -> None:
    members = endpoints(100, 100, 100, 100)
    policy = RoundRobin()
    policy.update(members)
    members[1].available = False
    assert Counter(picks(policy, 30)) == {members[i]: 10 for i in (0, 2, 3)}
    members[1].available = True
    assert set(Counter(picks(policy, 40)).values()) == {10}


# Random.


def test_random_follows_the_weights() -> None:
    members = endpoints(100, 200, 700)
    policy = RandomChoice(Random(1))
    policy.update(members)
    counts = Counter(picks(policy, 10_000))
    for endpoint in members:
        assert counts[endpoint] == pytest.approx(10 * endpoint.weight, rel=0.1)


def test_random_follows_the_weights_of_those_that_can_be_used() -> None:
    members = endpoints(100, 5000, 300)
    policy = RandomChoice(Random(1))
    policy.update(members)
    members[1].available = False
    counts = Counter(picks(policy, 4000))
    assert counts[members[2]] == pytest.approx(3000, rel=0.05)
    assert counts[members[1]] == 0
