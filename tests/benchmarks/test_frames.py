"""The frames of the load: read whole, byte by byte, and with the next one behind."""

from __future__ import annotations

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.streams import frames

FRAMES = st.lists(
    st.builds(
        frames.Frame,
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 2**31 - 1),
        st.binary(max_size=40),
    ),
    max_size=8,
)


@given(FRAMES, st.data())
def test_frames_come_back_however_they_are_cut(
    sent: list[frames.Frame], data: st.DataObject
) -> None:
    stream = b"".join(frames.frame(*frame) for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = frames.FrameReader()
    found: list[frames.Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.receive(stream[start:end])
    assert found == sent


def test_byte_by_byte() -> None:
    sent = frames.Frame(frames.DATA, frames.END_STREAM, 5, b"payload")
    reader = frames.FrameReader()
    found = [frame for byte in frames.frame(*sent) for frame in reader.receive(bytes((byte,)))]
    assert found == [sent]


def test_a_header_is_that_of_the_frame() -> None:
    assert frames.frame_header(3, 0, 1, 7) + b"abc" == frames.frame(0, 1, 7, b"abc")


def test_fields_are_hpack() -> None:
    pairs = [("content-type", "application/grpc"), ("te", "trailers")]
    decoded = [(str(name), str(value)) for name, value in Decoder().decode(frames.fields(pairs))]
    assert decoded == pairs


def test_a_value_too_long_for_one_length_byte_is_refused() -> None:
    with pytest.raises(ValueError):
        frames.literal("name", "v" * 127)


def test_the_last_value_of_a_setting_counts() -> None:
    body = frames.settings([(4, 100), (3, 7), (4, 200)])[9:]
    assert frames.setting(body, 4) == 200
    assert frames.setting(body, 3) == 7
    assert frames.setting(body, 1) is None
