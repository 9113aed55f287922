"""The reference is made from the models, and it is up to date."""

from __future__ import annotations

from pathlib import Path

from gateway.config import Config, parse
from gateway.config.fields import fields_of
from gateway.config.reference import EXAMPLE, render

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def every_field(model=Config):
    for spec in fields_of(model).values():
        yield spec
        if spec.kind == "part":
            yield from every_field(spec.model)


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == render(), (
        "run: python -m gateway.config.reference > docs/configuration.md"
    )


def test_every_key_is_there_with_a_meaning():
    page = render()
    for spec in every_field():
        if spec.kind == "internal":
            continue
        assert spec.description, spec.key
        assert spec.kind == "part" or f"| `{spec.key}` |" in page
    for hidden in ("| `name` |", "_s` |"):
        assert hidden not in page


def test_every_default_is_in_its_range():
    for spec in every_field():
        if "least" in spec.extra and isinstance(spec.default, (int, float)):
            assert spec.extra["least"] <= spec.default <= spec.extra["most"], spec.key


def test_the_example_can_be_served():
    config = parse(EXAMPLE)
    assert config.clusters["llama"].policy == "ring_hash"
    assert config.routes[0].timeout_s is None
