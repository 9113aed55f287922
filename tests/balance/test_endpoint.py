"""Endpoints: state, weight, and the count of streams in flight."""

from __future__ import annotations

from array import array

import pytest

from gateway.balance import Endpoint


class Cells:
    """A counter of three workers whose cells are not next to each other."""

    def __init__(self, index: int) -> None:
        self.memory = memoryview(array("q", [0] * 12))
        self.cells = self.memory[1::4]
        self.index = index


def test_counts_streams_of_its_own_without_a_counter() -> None:
    endpoint = Endpoint("a", ("10.0.0.1", 80))
    other = Endpoint("a", ("10.0.0.1", 80))
    endpoint.acquire()
    endpoint.acquire()
    assert (endpoint.in_flight, endpoint.load(), endpoint.held) == (2, 2, 2)
    assert other.in_flight == 0
    endpoint.release()
    endpoint.release()
    assert (endpoint.in_flight, endpoint.held) == (0, 0)


def test_sums_all_workers_and_writes_to_its_own_cell_only() -> None:
    counter = Cells(1)
    endpoint = Endpoint("a", None, 100, counter)
    counter.cells[0] = 5
    counter.cells[2] = 7
    endpoint.acquire()
    assert counter.memory.tolist() == [0, 5, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0]
    assert endpoint.in_flight == 13
    endpoint.release()
    assert endpoint.in_flight == 12


def test_two_objects_of_one_endpoint_share_the_count_but_not_what_they_hold() -> None:
    counter = Cells(0)
    old, new = Endpoint("a", None, 100, counter), Endpoint("a", None, 50, counter)
    old.acquire()
    new.acquire()
    assert (old.in_flight, new.in_flight) == (2, 2)
    old.release()
    assert (new.in_flight, old.held, new.held) == (1, 0, 1)


def test_one_release_too_many_is_an_error_and_changes_nothing() -> None:
    endpoint = Endpoint("a", None)
    with pytest.raises(RuntimeError, match="endpoint a "):
        endpoint.release()
    assert endpoint.in_flight == 0


def test_what_takes_it_out_of_picks() -> None:
    endpoint = Endpoint("a", None)
    assert endpoint.usable
    assert endpoint.load() == 0
    for attribute, value in (("available", False), ("draining", True), ("weight", 0)):
        before = getattr(endpoint, attribute)
        setattr(endpoint, attribute, value)
        assert not endpoint.usable
        assert endpoint.load() == -1
        setattr(endpoint, attribute, before)
        assert endpoint.usable


def test_a_negative_sum_does_not_take_it_out_of_picks() -> None:
    counter = Cells(0)
    endpoint = Endpoint("a", None, 100, counter)
    counter.cells[2] = -1
    assert endpoint.load() == 0
    assert endpoint.in_flight == -1  # visible to those who look for bugs


@pytest.mark.parametrize("weight", [-1, 1_000_001])
def test_weights_have_a_range(weight: int) -> None:
    with pytest.raises(ValueError, match="weight"):
        Endpoint("a", None, weight)


@pytest.mark.parametrize("index", [-1, 3])
def test_the_cell_must_exist(index: int) -> None:
    with pytest.raises(IndexError):
        Endpoint("a", None, 100, Cells(index))


def test_repr_says_its_state() -> None:
    endpoint = Endpoint("10.0.0.1:80", None)
    endpoint.acquire()
    assert repr(endpoint) == "<Endpoint 10.0.0.1:80 up weight=100 in_flight=1>"
    endpoint.available = False
    assert "down" in repr(endpoint)
    endpoint.draining = True
    assert "draining" in repr(endpoint)
