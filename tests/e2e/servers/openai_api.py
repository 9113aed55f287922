"""A model server as vLLM and llama.cpp look from outside: the OpenAI API in ASGI, on uvicorn.

The argument is its port. The words of a completion are those of its last message. A stream gives
one word and then waits for ``POST /control/go`` before each further one if its ``user`` is
``stepwise``. What happened is written to stdout, a line each: ``disconnected`` when a client went
away while its response was under way.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - what uvicorn runs on
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_go = asyncio.Semaphore(0)


def say(what: str) -> None:
    print(what, flush=True)


async def body_of(receive: Receive) -> bytes:
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            return body


async def answer(send: Send, status: int, value: Any) -> None:
    octets = json.dumps(value).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(octets)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": octets})


def chunk(text: str | None) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": "stop" if text is None else None}
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "echo",
        "choices": [choice],
    }


async def stream(words: list[str], stepwise: bool, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def words_out() -> None:
        for number, word in enumerate(words):
            if stepwise and number:
                await _go.acquire()
            event = b"data: " + json.dumps(chunk(word + " ")).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": True})
        last = b"data: " + json.dumps(chunk(None)).encode() + b"\n\ndata: [DONE]\n\n"
        await send({"type": "http.response.body", "body": last})

    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(words_out()), asyncio.create_task(until_gone())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if not tasks[0].done():
        say("disconnected")
    for task in tasks:
        task.cancel()


async def chat(receive: Receive, send: Send) -> None:
    asked = json.loads(await body_of(receive))
    words = asked["messages"][-1]["content"].split()
    if asked.get("stream"):
        await stream(words, asked.get("user") == "stepwise", receive, send)
        return
    message = {"role": "assistant", "content": " ".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": len(words), "total_tokens": len(words) + 1}
    await answer(
        send,
        200,
        {
            "id": "c-1",
            "object": "chat.completion",
            "created": 0,
            "model": "echo",
            "choices": [choice],
            "usage": usage,
        },
    )


async def embeddings(receive: Receive, send: Send) -> None:
    asked = json.loads(await body_of(receive))
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    data = [
        {"object": "embedding", "index": index, "embedding": [float(len(text))] * 8}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    await answer(send, 200, {"object": "list", "data": data, "model": "echo", "usage": usage})


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    path = scope["path"]
    if path == "/v1/models":
        model = {"id": "echo", "object": "model", "created": 0, "owned_by": "tests"}
        await answer(send, 200, {"object": "list", "data": [model]})
    elif path == "/v1/chat/completions":
        await chat(receive, send)
    elif path == "/v1/embeddings":
        await embeddings(receive, send)
    elif path == "/control/go":
        _go.release()
        await answer(send, 200, {})
    else:
        await answer(send, 404, {"error": {"message": f"no {path}", "code": "not_found"}})


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        lifespan="off",
        timeout_keep_alive=75,
    )
