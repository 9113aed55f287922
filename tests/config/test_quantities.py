"""Durations and sizes: every text that is written is read back; what is no quantity is refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.quantities import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("250us", 0.00025),
        ("100ms", 0.1),
        ("15s", 15.0),
        ("1.5s", 1.5),
        ("30m", 1800.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("1h30m", 5400.0),
        ("1m0.5s", 60.5),
        ("0s", 0.0),
        ("none", None),
        (15, 15.0),
        (0.25, 0.25),
        (0, 0.0),
    ],
)
def test_durations(value, seconds):
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("15", 'write "15s"'),
        ("1.5", 'write "1.5s"'),
        ("", "is not a duration"),
        ("15 s", "is not a duration"),
        ("15S", "is not a duration"),
        ("-1s", "is not a duration"),
        ("30m1h", "is not a duration"),
        ("1s1s", "is not a duration"),
        ("1m30", "is not a duration"),
        ("forever", "is not a duration"),
        ("9" * 16 + "s", "is not a duration"),
        ("1s\n", "is not a duration"),
        ("\u0661s", "is not a duration"),  # a digit of another script
        (-1, "is not a duration"),
        (float("nan"), "is not a duration"),
        (float("inf"), "is not a duration"),
    ],
)
def test_what_is_no_duration(value, says):
    with pytest.raises(ValueError, match=says):
        parse_duration(value)


@pytest.mark.parametrize("value", [True, None, [], {}])
def test_a_duration_of_a_wrong_type(value):
    with pytest.raises(TypeError, match='"15s"'):
        parse_duration(value)


@given(st.integers(0, 10**15))
@example(0)
@example(86_399_999_999)
def test_a_formatted_duration_is_read_back(us):
    seconds = us / 1_000_000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-15, abs=0)


@given(st.text(max_size=12) | st.from_regex(r"[0-9.]{1,4}(us|ms|[smhd])", fullmatch=True))
def test_any_text_is_a_duration_or_a_value_error(text):
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("0B", 0),
        ("100B", 100),
        ("64KiB", 65536),
        ("64 KiB", 65536),
        ("1MiB", 2**20),
        ("1.5MiB", 3 * 2**19),
        ("2GiB", 2**31),
        ("1TiB", 2**40),
        (0, 0),
        (16384, 16384),
    ],
)
def test_sizes(value, size):
    assert parse_size(value) == size


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("64", 'write "64B"'),
        ("64KB", 'did you mean "64KiB"'),
        ("64k", 'did you mean "64KiB"'),
        ("1mb", 'did you mean "1MiB"'),
        ("1mib", 'did you mean "1MiB"'),
        ("0.3B", "not a whole number of bytes"),
        ("", "is not a size"),
        ("none", "is not a size"),
        ("-1KiB", "is not a size"),
        ("1KiB1B", "is not a size"),
        (-1, "is not a size"),
    ],
)
def test_what_is_no_size(value, says):
    with pytest.raises(ValueError, match=says):
        parse_size(value)


@pytest.mark.parametrize("value", [True, None, 1.5, [], {}])
def test_a_size_of_a_wrong_type(value):
    with pytest.raises(TypeError, match='"64KiB"'):
        parse_size(value)


@given(st.integers(0, 2**50))
@example(0)
@example(1023)
@example(2**31 - 1)
def test_a_formatted_size_is_read_back(size):
    text = format_size(size)
    assert parse_size(int(text) if text.isdigit() else text) == size


@given(st.text(max_size=12) | st.from_regex(r"[0-9.]{1,4} ?[KMGTkmgt]?i?[Bb]?", fullmatch=True))
def test_any_text_is_a_size_or_a_value_error(text):
    try:
        size = parse_size(text)
    except ValueError:
        return
    assert size >= 0
