"""The reactor, turned by hand: readiness, deadlines, the flush list, and bugs of its targets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from select import EPOLLIN, poll

import pytest

from gateway.errors import Kind
from gateway.net import reactor as reactor_module
from gateway.net.reactor import (
    MAX_EVENTS,
    MAX_TRACEBACKS,
    NEVER,
    READABLE,
    SWEEP_INTERVAL_S,
    WRITABLE,
    Reactor,
)
from gateway.telemetry import FAILURES, Counter
from tests.rig import Rig


class Target(reactor_module.Target):
    """One end of a socket pair, which writes down what it is told."""

    def __init__(self, reactor: Reactor, events: int = READABLE) -> None:
        self.sock, self.other = socket.socketpair()
        self.sock.setblocking(False)
        self.reactor = reactor
        self.told: list[object] = []
        self.deadline = NEVER
        self.on_ready: Callable[[], None] = self.read
        self.on_fail: Callable[[], None] = lambda: None
        reactor.register(self.sock.fileno(), self, events)

    def read(self) -> None:
        self.told.append(self.sock.recv(100))

    def ready(self, events: int, now: float) -> None:
        assert now == self.reactor.now
        self.on_ready()

    def check(self, now: float) -> float:
        self.told.append(("check", now))
        return self.deadline

    def fail(self, detail: str) -> None:
        self.told.append(("fail", detail))
        self.close()
        self.on_fail()

    def close(self) -> None:
        if self.sock.fileno() >= 0:
            self.reactor.unregister(self.sock.fileno())
        self.sock.close()
        self.other.close()


@pytest.fixture
def reactor(rig: Rig) -> Reactor:
    return rig.reactor


@pytest.fixture
def target(reactor: Reactor) -> Iterator[Target]:
    target = Target(reactor)
    yield target
    target.close()


def bug() -> None:
    raise ZeroDivisionError("a bug")


def test_serves_what_is_ready(reactor: Reactor, target: Target) -> None:
    assert reactor.turn(0.0) == 0
    assert reactor.turns == 0
    target.other.send(b"a")
    assert reactor.turn(1.0) == 1
    assert reactor.turns == 1
    assert target.told == [b"a"]
    assert reactor.turn(0.0) == 0


def test_its_descriptor_is_readable_when_a_target_is_ready(
    reactor: Reactor, target: Target
) -> None:
    waiting = poll()
    waiting.register(reactor.fileno(), EPOLLIN)
    assert waiting.poll(0) == []
    target.other.send(b"a")
    assert waiting.poll(1000) == [(reactor.fileno(), EPOLLIN)]
    reactor.turn(0.0)


def test_modify_and_unregister(rig: Rig, reactor: Reactor, target: Target) -> None:
    target.other.send(b"a")
    reactor.modify(target.sock.fileno(), 0)
    assert reactor.turn(0.0) == 0
    reactor.modify(target.sock.fileno(), READABLE | WRITABLE)
    assert reactor.turn(0.0) == 1
    reactor.unregister(target.sock.fileno())
    reactor.unregister(target.sock.fileno())
    assert reactor.turn(0.0) == 0
    assert rig.targets() == []


def test_more_events_than_one_turn_takes(reactor: Reactor) -> None:
    targets = [Target(reactor) for _ in range(MAX_EVENTS + 20)]
    for target in targets:
        target.other.send(b"x")
    assert reactor.turn(0.0) == MAX_EVENTS
    assert reactor.turn(0.0) == 20
    assert [target.told for target in targets] == [[b"x"]] * len(targets)
    for target in targets:
        target.close()


def test_a_target_that_went_in_the_same_turn(rig: Rig, reactor: Reactor) -> None:
    """One closes the other while both are in the batch: the second is not served any more."""
    first, second = Target(reactor), Target(reactor)
    first.on_ready = second.close
    second.on_ready = first.close
    first.other.send(b"x")
    second.other.send(b"x")
    assert reactor.turn(1.0) == 2
    assert len(rig.targets()) == 1
    first.close()
    second.close()


def test_wake_lets_a_turn_come(reactor: Reactor) -> None:
    waiting = poll()
    waiting.register(reactor.fileno(), EPOLLIN)
    reactor.wake()
    reactor.wake()
    assert waiting.poll(1000) == [(reactor.fileno(), EPOLLIN)]
    reactor.turn(0.0)
    assert waiting.poll(0) == []


# --------------------------------------------------------------------------------- deadlines


def test_nobody_is_asked_before_the_earliest_deadline(reactor: Reactor, target: Target) -> None:
    reactor.turn(0.0)
    assert target.told == []
    assert reactor.next_at == NEVER
    reactor.note(reactor.now + 1000.0)
    reactor.note(reactor.now + 2000.0)
    assert reactor.next_at == reactor.now + 1000.0
    reactor.turn(0.0)
    assert target.told == []


def test_a_sweep_asks_everybody_and_finds_the_next(reactor: Reactor, target: Target) -> None:
    other = Target(reactor)
    asked: list[float] = []

    def check(now: float) -> float:
        asked.append(now)
        return 700.0

    reactor.add_check(check)
    target.deadline, other.deadline = 900.0, 800.0
    reactor.note(0.0)
    reactor.sweep(600.0)
    assert target.told == other.told == [("check", 600.0)]
    assert asked == [600.0]
    assert reactor.next_at == 700.0
    reactor.remove_check(check)
    reactor.sweep(700.0)
    assert asked == [600.0]
    assert reactor.next_at == 800.0
    other.close()
    reactor.sweep(800.0)
    assert reactor.next_at == 900.0


def test_a_deadline_noted_within_a_sweep_holds(reactor: Reactor, target: Target) -> None:
    def check(now: float) -> float:
        reactor.note(5.0)
        return NEVER

    reactor.add_check(check)
    reactor.sweep(1.0)
    assert reactor.next_at == 5.0
    reactor.remove_check(check)


def test_a_turn_sweeps_when_the_deadline_has_passed(reactor: Reactor, target: Target) -> None:
    reactor.turn(0.0)
    reactor.note(reactor.now)
    reactor.turn(0.0)
    assert [told[0] for told in target.told] == ["check"]  # type: ignore[index]
    assert reactor.next_at == NEVER


def test_sweeps_are_no_closer_than_their_interval(reactor: Reactor, target: Target) -> None:
    """A deadline that is always overdue does not make every turn a sweep."""
    reactor.turn(0.0)
    target.deadline = reactor.now
    reactor.sweep(reactor.now)
    begun = reactor.now
    turns = 0
    while reactor.now - begun < SWEEP_INTERVAL_S and turns < 10_000:
        assert len(target.told) == 1
        reactor.turn(0.0)
        turns += 1
    assert len(target.told) == 2


def test_a_target_that_closes_itself_in_a_sweep(reactor: Reactor) -> None:
    first, second = Target(reactor), Target(reactor)
    first.check = lambda now: first.close() or NEVER  # type: ignore[method-assign, func-returns-value]
    reactor.sweep(1.0)
    assert second.told == [("check", 1.0)]
    second.close()


# -------------------------------------------------------------------------------- flush list


class Flushed(reactor_module.Target):
    """What stands in the flush list."""

    def __init__(self, log: list[str], name: str, then: Callable[[], None] | None = None) -> None:
        self.log, self.name, self.then = log, name, then

    def flush(self, now: float) -> None:
        self.log.append(self.name)
        if self.then is not None:
            self.then()

    def fail(self, detail: str) -> None:
        self.log.append(f"{self.name} failed")


def test_flushed_once_at_the_end_of_the_turn(reactor: Reactor, target: Target) -> None:
    log: list[str] = []
    target.on_ready = lambda: reactor.flush_list.append(Flushed(log, "a")) or target.read()  # type: ignore[func-returns-value]
    target.other.send(b"x")
    reactor.turn(1.0)
    assert log == ["a"]
    assert reactor.flush_list == []
    reactor.turn(0.0)
    assert log == ["a"]


def test_what_is_added_while_it_is_walked_is_flushed_too(reactor: Reactor) -> None:
    log: list[str] = []
    last = Flushed(log, "c")
    second = Flushed(log, "b", lambda: reactor.flush_list.append(last))
    reactor.flush_list.append(Flushed(log, "a", lambda: reactor.flush_list.append(second)))
    reactor.turn(0.0)
    assert log == ["a", "b", "c"]
    assert reactor.flush_list == []


def test_what_a_sweep_adds_is_flushed(reactor: Reactor) -> None:
    log: list[str] = []

    def check(now: float) -> float:
        reactor.flush_list.append(Flushed(log, "a"))
        return NEVER

    reactor.add_check(check)
    reactor.sweep(1.0)
    assert log == ["a"]
    reactor.remove_check(check)


# -------------------------------------------------------------------------------------- bugs


def test_a_bug_closes_one_target_and_no_other(
    rig: Rig, reactor: Reactor, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [Target(reactor) for _ in range(3)]
    targets[1].on_ready = bug
    for target in targets:
        target.other.send(b"x")
    assert reactor.turn(1.0) == 3
    assert targets[0].told == targets[2].told == [b"x"]
    assert targets[1].told == [("fail", "internal error: ZeroDivisionError('a bug')")]
    assert rig.count(FAILURES[Kind.INTERNAL]) == 1
    printed = capsys.readouterr().err
    assert "gateway: internal error at <" in printed
    assert "Traceback" in printed
    assert "ZeroDivisionError: a bug" in printed
    for target in targets:
        target.close()


def test_only_the_first_few_bugs_are_printed(
    rig: Rig, reactor: Reactor, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(MAX_TRACEBACKS + 3):
        target = Target(reactor)
        target.on_ready = bug
        target.other.send(b"x")
        reactor.turn(1.0)
    assert capsys.readouterr().err.count("Traceback") == MAX_TRACEBACKS
    assert rig.count(FAILURES[Kind.INTERNAL]) == MAX_TRACEBACKS + 3


def test_a_bug_in_a_flush(reactor: Reactor, capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    reactor.flush_list.extend([Flushed(log, "a", bug), Flushed(log, "b")])
    reactor.turn(0.0)
    assert log == ["a", "a failed", "b"]
    assert reactor.flush_list == []
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_bug_in_a_sweep(rig: Rig, reactor: Reactor, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Target(reactor), Target(reactor)
    first.check = lambda now: bug() or NEVER  # type: ignore[method-assign, func-returns-value]
    second.deadline = 9.0
    reactor.sweep(1.0)
    assert first.told == [("fail", "internal error: ZeroDivisionError('a bug')")]
    assert second.told == [("check", 1.0)]
    assert reactor.next_at == 9.0
    assert rig.count(FAILURES[Kind.INTERNAL]) == 1
    second.close()


def test_a_bug_in_a_check_without_a_socket(
    rig: Rig, reactor: Reactor, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[float] = []

    def broken(now: float) -> float:
        bug()
        return NEVER

    def sound(now: float) -> float:
        asked.append(now)
        return 9.0

    reactor.add_check(broken)
    reactor.add_check(sound)
    reactor.sweep(1.0)
    assert asked == [1.0]
    assert reactor.next_at <= 9.0
    assert rig.count(FAILURES[Kind.INTERNAL]) == 1


def test_a_bug_in_fail_too(
    reactor: Reactor, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Target(reactor)
    broken.on_ready = broken.on_fail = bug
    broken.other.send(b"x")
    target.other.send(b"x")
    reactor.turn(1.0)
    assert target.told == [b"x"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_counting_by_name(rig: Rig, reactor: Reactor) -> None:
    reactor.count_name("stalled_stream")
    reactor.count(Counter.STALLED_STREAM, 2)
    assert rig.count(Counter.STALLED_STREAM) == 3


def test_the_time_is_that_of_the_turn(reactor: Reactor) -> None:
    before = reactor.now
    reactor.turn(0.0)
    assert reactor.now >= before
