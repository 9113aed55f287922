"""Frames that we write, against the hyperframe library's reading of them."""

from __future__ import annotations

import hyperframe.frame as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import frames as f


def parsed(octets: bytes) -> reference.Frame:
    frame, length = reference.Frame.parse_frame_header(memoryview(octets)[:9])
    assert len(octets) == 9 + length
    frame.parse_body(memoryview(octets)[9:])
    return frame


@given(
    st.integers(0, f.LARGEST_MAX_FRAME_SIZE),
    st.integers(0, 9),
    st.integers(0, 255),
    st.integers(0, f.MAX_STREAM_ID),
)
def test_header_is_nine_octets(length, kind, flags, stream_id):
    header = f.frame_header(length, kind, flags, stream_id)
    assert len(header) == 9
    assert int.from_bytes(header[:3], "big") == length
    assert (header[3], header[4]) == (kind, flags)
    assert int.from_bytes(header[5:], "big") == stream_id


@given(st.dictionaries(st.sampled_from(list(f.Setting)), st.integers(0, 2**32 - 1)))
def test_settings(pairs):
    frame = parsed(f.settings_frame(pairs))
    assert isinstance(frame, reference.SettingsFrame)
    assert (frame.stream_id, frame.settings, set(frame.flags)) == (0, pairs, set())


def test_settings_ack_is_empty():
    frame = parsed(f.SETTINGS_ACK)
    assert isinstance(frame, reference.SettingsFrame)
    assert (set(frame.flags), frame.body_len) == ({"ACK"}, 0)


@given(st.binary(min_size=8, max_size=8), st.booleans())
def test_ping(payload, ack):
    frame = parsed(f.ping_frame(payload, ack))
    assert isinstance(frame, reference.PingFrame)
    assert (frame.opaque_data, "ACK" in frame.flags) == (payload, ack)


@given(st.integers(0, f.MAX_STREAM_ID), st.integers(0, 2**32 - 1), st.binary(max_size=99))
def test_goaway(last, code, debug):
    frame = parsed(f.goaway_frame(last, code, debug))
    assert isinstance(frame, reference.GoAwayFrame)
    assert (frame.last_stream_id, frame.error_code, frame.additional_data) == (last, code, debug)


@given(st.integers(1, f.MAX_STREAM_ID), st.sampled_from(f.ErrorCode))
def test_rst_stream(stream_id, code):
    frame = parsed(f.rst_stream_frame(stream_id, code))
    assert isinstance(frame, reference.RstStreamFrame)
    assert (frame.stream_id, frame.error_code) == (stream_id, code)


@given(st.integers(0, f.MAX_STREAM_ID), st.integers(1, f.MAX_WINDOW))
def test_window_update(stream_id, increment):
    frame = parsed(f.window_update_frame(stream_id, increment))
    assert isinstance(frame, reference.WindowUpdateFrame)
    assert (frame.stream_id, frame.window_increment) == (stream_id, increment)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("NO_ERROR", 0), ("PROTOCOL_ERROR", 1), ("INTERNAL_ERROR", 2), ("FLOW_CONTROL_ERROR", 3),
        ("SETTINGS_TIMEOUT", 4), ("STREAM_CLOSED", 5), ("FRAME_SIZE_ERROR", 6),
        ("REFUSED_STREAM", 7), ("CANCEL", 8), ("COMPRESSION_ERROR", 9), ("CONNECT_ERROR", 10),
        ("ENHANCE_YOUR_CALM", 11), ("INADEQUATE_SECURITY", 12), ("HTTP_1_1_REQUIRED", 13),
    ],
)  # fmt: skip
def test_error_codes_of_section_7(name, number):
    assert f.ErrorCode[name] == number
    assert len(f.ErrorCode) == 14
