"""Heads: checked, and turned into what is sent on."""

from __future__ import annotations

from benchmarks.micro.samples import BROWSER, RESPONSE
from benchmarks.micro.timing import Operation
from gateway.wire.fields import parse_request, parse_response
from gateway.wire.forwarding import request_fields, response_fields


def operations() -> dict[str, Operation]:
    """By name."""
    request = parse_request(BROWSER)
    response = parse_response(RESPONSE)

    def read_request(count: int) -> None:
        for _ in range(count):
            parse_request(BROWSER)

    def read_response(count: int) -> None:
        for _ in range(count):
            parse_response(RESPONSE)

    def forward_request(count: int) -> None:
        for _ in range(count):
            request_fields(request, client=b"127.0.0.1", scheme=b"http", trusted=True)

    def forward_response(count: int) -> None:
        for _ in range(count):
            response_fields(response)

    return {
        "parse_request, 9 fields": read_request,
        "parse_response, 6 fields": read_response,
        "request_fields": forward_request,
        "response_fields": forward_response,
    }
