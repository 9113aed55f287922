"""A real model server, llama.cpp, behind the gateway: opt-in, since building it takes minutes.

``make test-llm`` makes ``.venv-llm`` and runs this; elsewhere it is skipped.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
import pytest

from .processes import gateway_command

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.llm


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llm_example", ROOT / "examples" / "llm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not (ROOT / ".venv-llm" / ".made").exists(), reason="make test-llm")
def test_chat(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 24,
    }
    with (
        example().stack(list(gateway_command()), tmp_path) as (port, _),
        openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{port}/v1") as client,
    ):
        whole: Any = client.chat.completions.create(**asked)
        assert whole.choices[0].message.content
        stream: Any = client.chat.completions.create(**asked, stream=True)
        words = [event.choices[0].delta.content for event in stream if event.choices]
        assert len([word for word in words if word]) > 3
        cancelled: Any = client.chat.completions.create(
            **{**asked, "max_tokens": 5000}, stream=True
        )
        next(iter(cancelled))
        cancelled.close()
        # With both slots free again the server answers two at once.
        again: Any = client.chat.completions.create(**asked)
        assert again.choices[0].message.content
