"""The list of counters is whole and consistent."""

from __future__ import annotations

import pytest

from gateway.errors import Kind
from gateway.telemetry import FAILURES, GAUGES, NAMES, Counter


def test_indices_are_consecutive_and_names_unique() -> None:
    assert [int(counter) for counter in Counter] == list(range(len(Counter)))
    assert len(set(NAMES)) == len(NAMES) == len(Counter)
    assert NAMES[Counter.REQUESTS] == "requests"


def test_every_kind_of_failure_has_a_counter_of_its_own() -> None:
    assert set(FAILURES) == set(Kind)
    assert len(set(FAILURES.values())) == len(Kind)
    for kind, counter in FAILURES.items():
        assert NAMES[counter] == f"failure_{kind.value}"


def test_gauges_are_those_that_count_what_is_open_or_waits() -> None:
    assert {counter.name for counter in GAUGES} == {
        counter.name
        for counter in Counter
        if counter.name.endswith(("_OPEN", "_AT")) or counter.name.startswith("OCSP_STAPLES")
    } | {"PENDING"}


@pytest.mark.parametrize(
    "limit",
    [
        "header_list_too_large",
        "too_many_fields",
        "continuation_flood",
        "header_block_too_large",
        "concurrent_streams_exceeded",
        "reset_flood",
        "induced_reset_flood",
        "ping_flood",
        "settings_flood",
        "empty_data_flood",
        "window_update_flood",
        "priority_flood",
        "stalled_stream",
        "stalled_connection",
        "preface_timeout",
        "header_timeout",
        "settings_timeout",
        "hpack_error",
        "protocol_error",
        "flow_control_error",
        "frame_size_error",
        "out_buffer_limit",
        "process_buffer_limit",
    ],
)
def test_every_limit_has_a_counter(limit: str) -> None:
    assert limit in NAMES
    assert Counter[limit.upper()] not in GAUGES
