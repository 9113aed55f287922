"""gRPC over HTTP/2: timeouts, messages, statuses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.frames import ErrorCode
from gateway.wire.grpc import (
    Message,
    MessageError,
    MessageReader,
    Status,
    format_timeout,
    h2_error_to_grpc_status,
    http_to_grpc_status,
    message_prefix,
    parse_timeout,
    percent_decode,
    percent_encode,
)

# grpc-timeout


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"3S", 3.0),
        (b"1500m", 1.5),
        (b"250u", 0.00025),
        (b"99999999n", 0.099999999),
        (b"0S", 0.0),
        (b"00000001S", 1.0),
        (b"99999999H", 99999999 * 3600.0),
    ],
)
def test_parse_timeout(value: bytes, seconds: float) -> None:
    assert parse_timeout(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"S", b"5", b"5s", b"5h", b"123456789S", b"-1S", b"+1S", b"1.5S"),
        *(b" 1S", b"1 S", b"1S ", b"1SS", b"1_0S", "\u0661S".encode()),
    ],
)
def test_invalid_timeout(value: bytes) -> None:
    with pytest.raises(ValueError, match="grpc-timeout"):
        parse_timeout(value)


@pytest.mark.parametrize(
    ("seconds", "value"),
    [
        (0.0, b"1n"),
        (-5.0, b"1n"),
        (-math.inf, b"1n"),
        (1e-12, b"1n"),
        (1e-6, b"1000n"),
        (0.0625, b"62500000n"),
        (0.5, b"500000u"),
        (64.0, b"64000000u"),
        (128.0, b"128000m"),
        (99_999.9995, b"99999999m"),
        (131_072.0, b"131072S"),
        (99_999_999.5, b"99999999S"),
        (120_000_000.0, b"2000000M"),
        (6_000_000_000.0, b"1666666H"),
        (math.inf, b"99999999H"),
        (1e300, b"99999999H"),
    ],
)
def test_format_timeout(seconds: float, value: bytes) -> None:
    assert format_timeout(seconds) == value


def test_format_timeout_refuses_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        format_timeout(math.nan)


@given(st.floats(min_value=1e-9, max_value=99_999_999 * 3600.0))
def test_a_formatted_timeout_is_never_later_and_close(seconds: float) -> None:
    value = format_timeout(seconds)
    assert len(value) <= 9
    back = parse_timeout(value)
    assert 0 < back <= seconds * (1 + 1e-15)
    # The finest unit that fits: seven digits at least, unless the unit is the finest of all (a
    # step from minutes to hours or seconds to minutes loses a factor of 60, not 10 or 1000).
    assert value.endswith(b"n") or seconds - back <= seconds / 99_999 + 1e-9


@given(st.integers(0, 99_999_999), st.sampled_from(b"HMSmun"))
def test_timeout_round_trip(count: int, unit: int) -> None:
    seconds = parse_timeout(b"%d%c" % (count, unit))
    back = parse_timeout(format_timeout(seconds))
    assert back == pytest.approx(seconds, rel=1e-5, abs=2e-9)


# grpc-message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", b""),
        ("plain text, with ~ and !", b"plain text, with ~ and !"),
        ("100%", b"100%25"),
        ("a\r\nb\x00\x7f", b"a%0D%0Ab%00%7F"),
        ("caf\u00e9 \u2615", b"caf%C3%A9 %E2%98%95"),
        (" ends ", b"%20ends%20"),
        (" ", b"%20"),
        ("\ud800", b"?"),
    ],
)
def test_percent_encode(text: str, value: bytes) -> None:
    assert percent_encode(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", ""),
        (b"a%20b%25", "a b%"),
        (b"caf%c3%a9", "caf\u00e9"),
        (b"100%", "100%"),
        (b"%4", "%4"),
        (b"%4g", "%4g"),
        (b"%g4", "%g4"),
        (b"%zz%41", "%zzA"),
        (b"%%41", "%A"),
        (b"%+1", "%+1"),
        (b"%ff", "\ufffd"),
        (b"\xff", "\ufffd"),
        ("raw \u00e9".encode(), "raw \u00e9"),
    ],
)
def test_percent_decode(value: bytes, text: str) -> None:
    assert percent_decode(value) == text


@given(st.text())
def test_message_round_trip(text: str) -> None:
    value = percent_encode(text)
    assert all(0x20 <= byte <= 0x7E for byte in value)
    assert value == value.strip(b" ")
    assert percent_decode(value) == text.encode("utf-8", "replace").decode()


@given(st.binary() | st.text("%4fG ").map(str.encode))
def test_decoding_never_fails(value: bytes) -> None:
    percent_decode(value)


# Statuses


def test_http_statuses() -> None:
    mapped = {code: http_to_grpc_status(code) for code in range(100, 600)}
    assert {code: status for code, status in mapped.items() if status is not Status.UNKNOWN} == {
        400: Status.INTERNAL,
        401: Status.UNAUTHENTICATED,
        403: Status.PERMISSION_DENIED,
        404: Status.UNIMPLEMENTED,
        429: Status.UNAVAILABLE,
        502: Status.UNAVAILABLE,
        503: Status.UNAVAILABLE,
        504: Status.UNAVAILABLE,
    }


def test_h2_error_codes() -> None:
    mapped = {code: h2_error_to_grpc_status(code) for code in ErrorCode}
    assert {code: status for code, status in mapped.items() if status is not Status.INTERNAL} == {
        ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
        ErrorCode.CANCEL: Status.CANCELLED,
        ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
        ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
    }
    assert h2_error_to_grpc_status(0xDEAD) is Status.INTERNAL


# Messages


def frame(payload: bytes, compressed: bool = False) -> bytes:
    return message_prefix(compressed, len(payload)) + payload


def test_message_prefix() -> None:
    assert message_prefix(False, 0) == b"\0\0\0\0\0"
    assert message_prefix(True, 0x01020304) == b"\1\1\2\3\4"
    with pytest.raises(OverflowError):
        message_prefix(False, 2**32)


MESSAGES = [
    Message(False, b"first"),
    Message(True, b""),
    Message(False, bytes(300)),
    Message(True, b"\1\0\0\0\1"),
]
STREAM = b"".join(frame(message.payload, message.compressed) for message in MESSAGES)


def test_messages_whole() -> None:
    reader = MessageReader(1000)
    assert reader.receive(STREAM) == MESSAGES
    assert reader.at_boundary


def test_messages_byte_by_byte() -> None:
    reader = MessageReader(1000)
    got = [m for i in range(len(STREAM)) for m in reader.receive(STREAM[i : i + 1])]
    assert got == MESSAGES
    assert reader.at_boundary


@pytest.mark.parametrize("extra", range(1, 6))
def test_messages_with_the_start_of_the_next(extra: int) -> None:
    reader = MessageReader(1000)
    following = frame(b"next")
    assert reader.receive(memoryview(STREAM + following[:extra])) == MESSAGES
    assert not reader.at_boundary
    assert reader.receive(bytearray(following[extra:])) == [Message(False, b"next")]
    assert reader.at_boundary


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=40)), max_size=6),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_messages_however_cut(messages: list[tuple[bool, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(payload, compressed) for compressed, payload in messages)
    reader = MessageReader(40)
    got: list[Message] = []
    position = turn = 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        got += reader.receive(stream[position : position + step])
        position += step
        turn += 1
    assert got == messages
    assert reader.at_boundary


def test_message_of_the_largest_size() -> None:
    assert MessageReader(4).receive(frame(b"1234")) == [Message(False, b"1234")]


def test_message_too_large_is_refused_at_its_prefix() -> None:
    reader = MessageReader(4)
    assert reader.receive(message_prefix(False, 5)[:4]) == []
    with pytest.raises(MessageError, match="5 bytes") as caught:
        reader.receive(b"\5")
    assert caught.value.status is Status.RESOURCE_EXHAUSTED
    with pytest.raises(MessageError, match="already lost"):
        reader.receive(frame(b"good"))


def test_bad_flag() -> None:
    reader = MessageReader(4)
    with pytest.raises(MessageError, match="flag is 2") as caught:
        reader.receive(b"\2\0\0\0\0")
    assert caught.value.status is Status.INTERNAL
    with pytest.raises(MessageError, match="already lost"):
        reader.receive(frame(b"good"))
