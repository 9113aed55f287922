"""The limits of connections: the tables ``[http1]`` and ``[http2]``, and what all tables share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.config.kinds import count, duration, size, toml_name

MAX_WINDOW = 2**31 - 1
"""The largest flow-control window (RFC 9113 section 6.9.1)."""

KIB = 1024
MIB = 1024 * 1024


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=toml_name):
    """What all tables share."""


class Http1(Model, frozen=True, kw_only=True):
    """Limits of every HTTP/1.1 connection, downstream and upstream."""

    max_head_size: Annotated[
        int,
        size(
            "Bytes of a request or status line with its fields, and of a trailer section. A larger "
            "request is answered 431.",
            least=1024,
            most=16 * MIB,
        ),
    ] = 64 * KIB
    max_fields: Annotated[
        int, count("Fields of one head. A request with more is answered 431.", least=8)
    ] = 128
    header_timeout_s: Annotated[
        float,
        duration(
            "How long a request head may take from its first byte to its end (slow loris); then "
            "the answer is 408.",
            least=0.1,
        ),
    ] = 10.0
    keepalive_timeout_s: Annotated[
        float | None,
        duration(
            "A client's connection without a request for so long is closed.",
            least=0.1,
            none="never closed for being idle, but for the listener's `idle_timeout`",
        ),
    ] = 75.0
    max_body_buffer: Annotated[
        int,
        size("Bytes of a body that are read ahead of a slow receiver.", least=16 * KIB),
    ] = 256 * KIB
    max_chunk_extensions: Annotated[
        int, size("Bytes of chunk extensions in one body.", most=MIB)
    ] = 16 * KIB


class Http2(Model, frozen=True, kw_only=True):
    """Limits of every HTTP/2 connection, downstream and upstream.

    The `max_…` counts from `max_resets` to `max_ignored_frames` hold for each `flood_interval`; a
    peer above one of them gets GOAWAY(ENHANCE_YOUR_CALM) and loses its connection.
    """

    max_concurrent_streams: Annotated[
        int, count("Streams a client may have open: SETTINGS_MAX_CONCURRENT_STREAMS.", least=1)
    ] = 1000
    header_table_size: Annotated[
        int,
        size("HPACK dynamic table, each direction: SETTINGS_HEADER_TABLE_SIZE.", most=MIB),
    ] = 4096
    max_frame_size: Annotated[
        int,
        size(
            "Largest frame payload we take: SETTINGS_MAX_FRAME_SIZE.", least=16384, most=2**24 - 1
        ),
    ] = 16384
    initial_stream_window: Annotated[
        int,
        size(
            "Receive window a stream starts with: SETTINGS_INITIAL_WINDOW_SIZE.",
            least=1,
            most=MAX_WINDOW,
        ),
    ] = MIB
    max_stream_window: Annotated[
        int,
        size(
            "Receive window a stream can grow to with the measured bandwidth-delay product.",
            least=1,
            most=MAX_WINDOW,
        ),
    ] = 2 * MIB
    initial_connection_window: Annotated[
        int,
        size("Receive window a connection starts with.", least=65535, most=MAX_WINDOW),
    ] = 2 * MIB
    max_connection_window: Annotated[
        int,
        size("Receive window a connection can grow to.", least=65535, most=MAX_WINDOW),
    ] = 4 * MIB
    max_header_list_size: Annotated[
        int,
        size(
            "Decoded size of one field section, 32 bytes added for each field (RFC 9113 section "
            "6.5.2): SETTINGS_MAX_HEADER_LIST_SIZE. A larger request is answered 431.",
            least=1024,
            most=16 * MIB,
        ),
    ] = 64 * KIB
    max_fields: Annotated[
        int, count("Fields of one field section. A request with more is answered 431.", least=8)
    ] = 128
    max_header_block: Annotated[
        int,
        size(
            "Encoded bytes of one HEADERS frame with its CONTINUATION frames; above it the "
            "connection is closed.",
            least=1024,
            most=16 * MIB,
        ),
    ] = 64 * KIB
    max_continuation_frames: Annotated[
        int, count("CONTINUATION frames of one field section; above it the connection is closed.")
    ] = 16
    flood_interval_s: Annotated[
        float, duration("The interval over which floods are counted.", least=0.1, most=3600.0)
    ] = 10.0
    max_resets: Annotated[
        int,
        count("RST_STREAM frames from a client in one `flood_interval` (rapid reset).", least=1),
    ] = 2000
    max_induced_resets: Annotated[
        int,
        count(
            "Resets we had to send because of a client's mistakes in one `flood_interval`.",
            least=1,
        ),
    ] = 200
    max_pings: Annotated[
        int, count("PING frames without DATA of ours in between, in one `flood_interval`.", least=1)
    ] = 200
    max_settings: Annotated[int, count("SETTINGS frames in one `flood_interval`.", least=1)] = 100
    max_empty_data: Annotated[
        int,
        count("DATA frames without data and without END_STREAM in one `flood_interval`.", least=1),
    ] = 1000
    max_window_updates: Annotated[
        int,
        count(
            "WINDOW_UPDATE frames beyond two for each DATA frame of ours, in one `flood_interval`.",
            least=1,
        ),
    ] = 20000
    max_ignored_frames: Annotated[
        int,
        count(
            "PRIORITY frames, frames of unknown type, acknowledgements of nothing and interim "
            "(1xx) responses in one `flood_interval`.",
            least=1,
        ),
    ] = 2000
    stall_timeout_s: Annotated[
        float | None,
        duration(
            "How long a stream with bytes to send may wait for the peer's window without any "
            "progress before it is reset (slow read).",
            least=0.1,
            none="a stalled stream waits for ever",
        ),
    ] = 60.0
    preface_timeout_s: Annotated[
        float, duration("How long a client may take for the connection preface.", least=0.1)
    ] = 10.0
    header_timeout_s: Annotated[
        float,
        duration("How long a started field section may take to be whole (slow loris).", least=0.1),
    ] = 10.0
    settings_timeout_s: Annotated[
        float, duration("How long a peer may take to acknowledge our SETTINGS.", least=0.1)
    ] = 10.0
    max_connection_buffer: Annotated[
        int,
        size(
            "Bytes that wait to be written to one connection before its senders have to wait.",
            least=64 * KIB,
        ),
    ] = 256 * KIB
    max_closed_streams: Annotated[
        int,
        count(
            "Streams we reset that a connection remembers, to tell late frames from wrong ones.",
            least=1,
            most=1_000_000,
        ),
    ] = 1000
