"""Memory shared by processes: real forks, no mocks."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
from ast import literal_eval
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.balance import Endpoint
from gateway.telemetry import GAUGES, NAMES, Counter, InFlight, SharedMemory, SlotsExhausted


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    memory = SharedMemory(workers=4, endpoint_slots=64)
    yield memory
    memory.close()


class Child:
    """A forked process that runs ``work``; it waits at its start until it is let go."""

    def __init__(self, work: Callable[[], object]) -> None:
        go, self._go = os.pipe()
        self._result, result = os.pipe()
        self.pid = os.fork()  # noqa: TID251 - what is tested is what the supervisor does
        if self.pid == 0:
            self._run(work, go, result)
        os.close(go)
        os.close(result)

    def _run(self, work: Callable[[], object], go: int, result: int) -> NoReturn:
        """In the child: leaves by os._exit, so that nothing of pytest runs twice."""
        status = 1
        try:
            os.close(self._go)
            os.read(go, 1)
            os.write(result, repr(work()).encode())
            status = 0
        finally:
            os._exit(status)

    def let_go(self) -> None:
        os.close(self._go)

    def result(self) -> object:
        """What ``work`` returned (a tuple or list of numbers), after the child has ended."""
        with os.fdopen(self._result, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(self.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        return literal_eval(text)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._go)
        os.close(self._result)


def in_children(*works: Callable[[], object]) -> list[object]:
    """Runs each work in a process of its own, all at once."""
    children = [Child(work) for work in works]
    for child in children:
        child.let_go()
    return [child.result() for child in children]


# Counters.


def test_a_snapshot_is_the_sum_of_all_workers(shared: SharedMemory) -> None:
    def work(worker: int) -> None:
        row = shared.row(worker)
        for _ in range(1000):
            row.counters[Counter.REQUESTS] += 1
        row.add(Counter.EXCHANGES_OPEN, worker)
        row.add(Counter.EXCHANGES_OPEN, -1)

    in_children(*[lambda worker=worker: work(worker) for worker in range(4)])
    snapshot = shared.snapshot()
    assert tuple(snapshot) == NAMES
    assert {name: value for name, value in snapshot.items() if value} == {
        "requests": 4000,
        "exchanges_open": 2,
    }


def test_rows_do_not_share_a_page(shared: SharedMemory) -> None:
    shared.row(0).add(Counter.REQUESTS, 7)
    shared.row(1).add(Counter.REQUESTS, 8)
    words = shared.row(0).counters.obj
    assert isinstance(words, mmap.mmap)
    at = [words.find((value).to_bytes(8, "little")) for value in (7, 8)]
    assert (at[1] - at[0]) % mmap.PAGESIZE == 0
    assert (at[0] - 8 * Counter.REQUESTS) % mmap.PAGESIZE == 0


def test_the_row_of_a_dead_worker_keeps_what_it_counted_and_drops_what_it_had_open(
    shared: SharedMemory,
) -> None:
    row = shared.row(2)
    for counter in Counter:
        row.add(counter, 10 + counter)
        shared.row(0).add(counter, 1)
    shared.clear_row(2)
    assert set(row.counters.tolist()) == {0}
    expected = [1 if counter in GAUGES else 11 + counter for counter in Counter]
    assert list(shared.snapshot().values()) == expected
    # Again for its successor in the same row.
    row.add(Counter.REQUESTS, 5)
    shared.clear_row(2)
    assert shared.snapshot()["requests"] == 16 + Counter.REQUESTS


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(Counter), st.integers(1, 2**40))
        | st.integers(0, 2),
        max_size=40,
    )
)
def test_totals_never_go_backwards(steps: list[tuple[int, Counter, int] | int]) -> None:
    shared = SharedMemory(3, 1)
    expected = dict.fromkeys(NAMES, 0)
    gauges = [dict.fromkeys(GAUGES, 0) for _ in range(3)]
    for step in steps:
        if isinstance(step, int):
            shared.clear_row(step)
            gauges[step] = dict.fromkeys(GAUGES, 0)
        else:
            worker, counter, n = step
            shared.row(worker).add(counter, n)
            if counter in GAUGES:
                gauges[worker][counter] += n
            else:
                expected[NAMES[counter]] += n
        for gauge in GAUGES:
            expected[NAMES[gauge]] = sum(open_[gauge] for open_ in gauges)
        assert shared.snapshot() == expected
    shared.close()


def test_totals_stay_while_a_row_is_cleared(shared: SharedMemory) -> None:
    """A reader in another process never sees a row counted twice or not at all."""
    shared.row(0).add(Counter.REQUESTS, 1000)

    def read() -> list[int]:
        return sorted({shared.snapshot()["requests"] for _ in range(2000)})

    def clear() -> list[int]:
        row = shared.row(0)
        for _ in range(500):
            shared.clear_row(0)
            retired = shared.snapshot()["requests"]
            assert retired == 1000
            row.add(Counter.REQUESTS, 0)
        return []

    assert in_children(read, clear) == [[1000], []]


@pytest.mark.parametrize(
    ("within", "call", "lock"),
    [
        ("_find", lambda shared: shared.claim_slot("b"), fcntl.LOCK_SH),
        ("_find", lambda shared: shared.release_slot("a"), fcntl.LOCK_SH),
        ("_sweep", lambda shared: shared.slots_in_use(), fcntl.LOCK_SH),
        ("_counters", lambda shared: shared.clear_row(0), fcntl.LOCK_SH),
        ("_counters", lambda shared: shared.snapshot(), fcntl.LOCK_EX),
    ],
)
def test_what_concerns_several_processes_happens_under_the_lock(
    shared: SharedMemory,
    monkeypatch: pytest.MonkeyPatch,
    within: str,
    call: Callable[[SharedMemory], object],
    lock: int,
) -> None:
    """In the middle of ``call``, another process can't take ``lock``."""
    shared.claim_slot("a")
    step: Callable[..., object] = getattr(shared, within)
    refused: list[object] = []

    def try_lock() -> list[bool]:
        try:
            fcntl.lockf(shared._fd, lock | fcntl.LOCK_NB)
        except OSError:
            return [True]
        return [False]

    def watched(*args: int) -> object:
        refused.extend(in_children(try_lock))
        return step(*args)

    assert in_children(try_lock) == [[False]]
    monkeypatch.setattr(shared, within, watched)
    call(shared)
    assert refused
    assert all(one == [True] for one in refused)
    assert in_children(try_lock) == [[False]]


# Endpoint slots.


def test_all_processes_find_the_same_slot(shared: SharedMemory) -> None:
    keys = [f"10.0.0.{i}:9001" for i in range(60)]

    def claim(worker: int) -> list[int]:
        order = keys[worker * 15 :] + keys[: worker * 15]
        slots = {key: shared.claim_slot(key, worker) for key in order}
        return [slots[key] for key in keys]

    results = in_children(*[lambda worker=w: claim(worker) for w in range(4)])
    assert results[1:] == results[:1] * 3
    assert len(set(results[0])) == len(keys)  # type: ignore[call-overload]
    assert shared.slots_in_use() == len(keys)


def test_processes_that_claim_and_release_at_once_never_share_a_slot(shared: SharedMemory) -> None:
    def churn(worker: int) -> list[int]:
        row = shared.row(worker)
        wrong = 0
        for i in range(150):
            key = f"{worker}/{i % 7}"
            counter = row.claim(key)
            counter.add(1)
            wrong += counter.total() != 1  # somebody else counts in this slot
            wrong += shared.claim_slot(key, worker) != shared.claim_slot(key, worker)
            counter.add(-1)
            for _ in range(3):
                row.release(key)
        return [wrong]

    results = in_children(*[lambda worker=w: churn(worker) for w in range(4)])
    assert results == [[0]] * 4
    assert shared.slots_in_use() == 0


def test_streams_in_flight_are_summed_over_processes(shared: SharedMemory) -> None:
    """With the Endpoint of the policies, as the workers use it."""

    def work(worker: int) -> list[int]:
        endpoint = Endpoint("a", None, 100, shared.row(worker).claim("a"))
        for _ in range(10 * (worker + 1)):
            endpoint.acquire()
        endpoint.release()
        return []

    in_children(*[lambda worker=worker: work(worker) for worker in range(4)])
    slot = shared.claim_slot("a")
    counter = shared.in_flight(slot, 1)
    assert counter.total() == 100 - 4
    assert counter.cells.tolist() == [9, 19, 29, 39]
    assert Endpoint("a", None, 100, counter).in_flight == 96
    assert shared.in_flight(shared.claim_slot("b"), 1).total() == 0


def test_a_killed_worker_leaves_nothing_in_flight(shared: SharedMemory) -> None:
    ready, ready_child = os.pipe()

    def work() -> None:
        endpoint = Endpoint("a", None, 100, shared.row(3).claim("a"))
        endpoint.acquire()
        shared.row(3).claim("only its own")
        shared.row(3).add(Counter.REQUESTS, 3)
        shared.row(3).add(Counter.EXCHANGES_OPEN, 1)
        os.write(ready_child, b"1")
        signal.pause()

    survivor = Endpoint("a", None, 100, shared.row(0).claim("a"))
    survivor.acquire()
    child = Child(work)
    os.write(child._go, b"1")
    os.read(ready, 1)
    assert survivor.in_flight == 2
    assert shared.slots_in_use() == 2
    child.kill()
    os.close(ready)
    os.close(ready_child)
    shared.clear_row(3)
    assert survivor.in_flight == 1
    assert shared.slots_in_use() == 1  # what only the dead worker held is free
    snapshot = shared.snapshot()
    assert (snapshot["requests"], snapshot["exchanges_open"]) == (3, 0)


def test_a_process_that_dies_under_the_lock_does_not_block_the_others(
    shared: SharedMemory,
) -> None:
    ready, ready_child = os.pipe()

    def work() -> None:
        with shared._locked(fcntl.LOCK_EX):
            os.write(ready_child, b"1")
            signal.pause()

    child = Child(work)
    os.write(child._go, b"1")
    os.read(ready, 1)
    child.kill()
    os.close(ready)
    os.close(ready_child)
    assert shared.claim_slot("a") == 0


def test_full(shared: SharedMemory) -> None:
    for i in range(64):
        shared.claim_slot(f"e{i}", i % 4)
    with pytest.raises(SlotsExhausted, match=r"endpoint 10.0.0.1:80: all 64 endpoint slots"):
        shared.claim_slot("10.0.0.1:80", 0)
    assert shared.claim_slot("e5", 0) == shared.claim_slot("e5", 1)
    assert shared.release_slot("e9", 1)
    assert shared.claim_slot("10.0.0.1:80", 0) == 9


def test_a_slot_is_free_when_all_have_released_it(shared: SharedMemory) -> None:
    shared.claim_slot("a")  # the parent
    for worker in (0, 1, 1):
        shared.claim_slot("a", worker)
    assert not shared.release_slot("a", 1)
    assert not shared.release_slot("a", 0)
    assert not shared.release_slot("a")
    assert shared.slots_in_use() == 1
    assert shared.release_slot("a", 1)
    assert shared.slots_in_use() == 0


def test_a_slot_waits_for_its_last_stream() -> None:
    shared = SharedMemory(1, 1)
    counter = shared.row(0).claim("a")
    counter.add(1)
    assert not shared.row(0).release("a")
    with pytest.raises(SlotsExhausted):
        shared.claim_slot("b")
    assert shared.claim_slot("a") == 0  # the same endpoint may come back to its count
    assert not shared.release_slot("a")
    counter.add(-1)
    assert shared.claim_slot("b") == 0
    shared.close()


def test_only_what_was_claimed_can_be_released(shared: SharedMemory) -> None:
    with pytest.raises(KeyError):
        shared.release_slot("a")
    shared.claim_slot("a", 0)
    with pytest.raises(KeyError):
        shared.release_slot("a", 1)
    shared.release_slot("a", 0)
    with pytest.raises(KeyError):
        shared.release_slot("a", 0)


def test_what_is_out_of_range_is_refused(shared: SharedMemory) -> None:
    for call in (
        lambda: shared.row(4),
        lambda: shared.row(-1),
        lambda: shared.clear_row(4),
        lambda: shared.claim_slot("a", 4),
        lambda: shared.in_flight(64, 0),
        lambda: shared.in_flight(-1, 0),
        lambda: shared.in_flight(0, 4),
    ):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(ValueError, match="at least 1"):
        SharedMemory(0, 1)
    with pytest.raises(ValueError, match="at least 1"):
        SharedMemory(1, 0)


def test_without_memfd_an_unlinked_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    shared = SharedMemory(2, 8)

    def work() -> list[int]:
        shared.row(1).add(Counter.REQUESTS, 5)
        return [shared.claim_slot("a")]

    assert in_children(work) == [[0]]
    assert shared.snapshot()["requests"] == 5
    assert shared.claim_slot("b") == 1
    shared.close()


def test_views_outlive_a_close(shared: SharedMemory) -> None:
    memory = SharedMemory(1, 1)
    row = memory.row(0)
    counter: InFlight = row.claim("a")
    memory.close()
    counter.add(1)
    row.add(Counter.REQUESTS)
    assert counter.total() == 1
    memory.close()
