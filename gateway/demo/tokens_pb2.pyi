from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Prompt(_message.Message):
    __slots__ = ("text", "tokens", "interval_ms", "payload_bytes", "sleep_ms", "failure", "last", "payload")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    SLEEP_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    interval_ms: int
    payload_bytes: int
    sleep_ms: int
    failure: Failure
    last: bool
    payload: bytes
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ..., interval_ms: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., sleep_ms: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., last: _Optional[bool] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "details", "after_tokens")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    AFTER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedScalarFieldContainer[str]
    after_tokens: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[str]] = ..., after_tokens: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("index", "text", "payload", "backend")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    payload: bytes
    backend: str
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ..., payload: _Optional[bytes] = ..., backend: _Optional[str] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("text", "tokens", "payload", "backend", "metadata", "remaining_ms", "request_bytes", "request_crc")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_CRC_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    payload: bytes
    backend: str
    metadata: _containers.RepeatedCompositeFieldContainer[Metadata]
    remaining_ms: int
    request_bytes: int
    request_crc: int
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ..., payload: _Optional[bytes] = ..., backend: _Optional[str] = ..., metadata: _Optional[_Iterable[_Union[Metadata, _Mapping]]] = ..., remaining_ms: _Optional[int] = ..., request_bytes: _Optional[int] = ..., request_crc: _Optional[int] = ...) -> None: ...

class Metadata(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Summary(_message.Message):
    __slots__ = ("tokens", "bytes", "backend", "crc")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    bytes: int
    backend: str
    crc: int
    def __init__(self, tokens: _Optional[int] = ..., bytes: _Optional[int] = ..., backend: _Optional[str] = ..., crc: _Optional[int] = ...) -> None: ...
