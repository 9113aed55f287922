"""What h2load prints, read."""

from __future__ import annotations

import pytest

from benchmarks.load import (
    H2loadOutput,
    Shape,
    parse_duration_s,
    parse_log,
    parse_output,
    parse_protocols,
)

GOOD = """\
starting benchmark...
spawning thread #0: 2 total client(s). 400 total requests
Application protocol: h2c
progress: 100% done

finished in 12.94ms, 30902.35 req/s, 31.05MB/s
requests: 400 total, 400 started, 400 done, 397 succeeded, 3 failed, 1 errored, 0 timeout
status codes: 397 2xx, 0 3xx, 0 4xx, 2 5xx
traffic: 411.52KB (421394) total, 4.44KB (4546) headers (space savings 92.71%), 400.00KB data
                     min         max         mean         sd        +/- sd
time for request:       44us      1.19ms       240us       232us    77.50%
"""


def test_output_is_read() -> None:
    output = parse_output(GOOD)
    assert output == H2loadOutput(output.seconds, total=400, succeeded=397, failed=3)
    assert output.seconds == pytest.approx(0.01294)


@pytest.mark.parametrize("missing", ["finished in ", "requests: "])
def test_output_without_a_line_is_refused(missing: str) -> None:
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(missing))
    with pytest.raises(ValueError, match="not the output of h2load"):
        parse_output(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("44us", 44e-6), ("12.94ms", 0.01294), ("1.06s", 1.06), ("2m", 120), ("1h", 3600)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "ms", "5 parsecs"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_s(text)


def test_latencies_of_the_log() -> None:
    assert parse_log("1796101011877247\t200\t92959\n1796101011877248\t200\t7\n") == [92959, 7]


def test_a_scaled_shape_keeps_a_request_for_each_place() -> None:
    shape = Shape(connections=10, streams=10, requests=1000)
    assert shape.label == "10x10"
    assert shape.scaled(0.5).requests == 500
    assert shape.scaled(0.01).requests == 100


def test_protocols_are_read() -> None:
    said = "TLS Protocol: TLSv1.3\nServer Temp Key: X25519 253 bits\nApplication protocol: h2\n"
    assert parse_protocols(said) == {
        "TLS Protocol": "TLSv1.3",
        "Server Temp Key": "X25519 253 bits",
        "Application protocol": "h2",
    }
    assert parse_protocols(GOOD) == {"Application protocol": "h2c"}
