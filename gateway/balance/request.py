"""What a policy gets to see of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.head import RequestHead

if TYPE_CHECKING:
    from gateway import cython_fallback as cython
else:
    try:
        import cython
    except ModuleNotFoundError:  # installed without Cython
        from gateway import cython_fallback as cython


@cython.final
@cython.freelist(64)
@cython.cclass
class PickRequest:
    """The head, and the client's address as text without its port (empty where it has none)."""

    if cython.compiled:
        head: RequestHead = cython.declare(object, visibility="public")
        client: bytes = cython.declare(bytes, visibility="public")
    else:
        __slots__ = ("client", "head")

    def __init__(self, head: RequestHead, client: bytes) -> None:
        self.head = head
        self.client = client

    def __repr__(self) -> str:
        return f"<PickRequest {self.head!r} from {self.client!r}>"
