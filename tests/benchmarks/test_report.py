"""Tables, JSON and the quick line."""

from __future__ import annotations

import json
from dataclasses import replace

from benchmarks import quick
from benchmarks.harness import Results
from benchmarks.report import Report, ratio
from benchmarks.scenarios import SCENARIOS, http1_1k, sse_tokens
from benchmarks.scenarios.base import Target


def results() -> Results:
    made = Results(notes=["a note", "a note"])
    made.add("10x10", "gateway", [{"cpu_us": 10.0, "rps": 1234.0}, {"cpu_us": 12.0, "rps": 1200.0}])
    made.add("10x10", "envoy", [{"cpu_us": 22.0, "rps": 900.0}, {"cpu_us": 22.0, "rps": 900.0}])
    made.fail("64x1", "nginx", "several\nlines")
    return made


def test_a_ratio_is_the_gateways_figure_by_the_peers() -> None:
    made = results()
    assert ratio(made, "10x10", "envoy", "cpu_us") == 0.5
    assert ratio(made, "10x10", "gateway", "cpu_us") is None
    assert ratio(made, "10x10", "nginx", "cpu_us") is None
    assert ratio(made, "64x1", "envoy", "cpu_us") is None


def test_the_table_shows_figures_ratios_and_failures() -> None:
    report = Report(2, 1.0, {"envoy": "1.40", "nginx": "skipped: not installed"})
    report.scenarios.append((SCENARIOS["unary-1k"], results()))
    text = report.markdown()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1
    envoy = next(row for row in rows if row[1].strip() == "envoy")
    assert [cell.strip() for cell in (envoy[0], envoy[2], envoy[3], envoy[-1])] == [
        "10x10",
        "22.00",
        "900",
        "0.50",
    ]
    assert "- nginx: skipped: not installed" in text
    assert "- 64x1: nginx failed: several lines" in text
    assert text.count("a note") == 1


def test_targets_are_held_against_the_ratios() -> None:
    targets = (
        Target("10x10", "envoy", 0.5),
        Target("10x10", "envoy", 0.49),
        Target("64x1", "nginx", 1.5),
    )
    scenario = replace(SCENARIOS["unary-1k"], targets=targets)
    report = Report(2, 1.0, {})
    report.scenarios.append((scenario, results()))
    said = [line for line in report.markdown().splitlines() if line.startswith("- target: ")]
    assert said == [
        "- target: 10x10, CPU us/request at most 0.50 of envoy's: 0.50, met",
        "- target: 10x10, CPU us/request at most 0.49 of envoy's: 0.50, NOT met",
        "- target: 64x1, CPU us/request at most 1.50 of nginx's: not measured",
    ]
    written = json.loads(report.json())["scenarios"]["unary-1k"]["targets"]
    assert written == [
        {"case": "10x10", "peer": "envoy", "most": 0.5, "ratio": 0.5},
        {"case": "10x10", "peer": "envoy", "most": 0.49, "ratio": 0.5},
        {"case": "64x1", "peer": "nginx", "most": 1.5, "ratio": None},
    ]


def test_the_targets_name_cases_that_are_run() -> None:
    assert {
        (name, target.case, target.peer, target.most)
        for name, scenario in SCENARIOS.items()
        for target in scenario.targets
    } == {
        ("http1-1k", "64x1", "envoy", 0.7),
        ("http1-1k", "64x1", "nginx", 1.5),
        ("sse-tokens", "1000 streams", "envoy", 0.6),
    }
    assert "64x1" in {shape.label for shape in http1_1k.SHAPES}
    assert 1000 in sse_tokens.STREAMS


def test_json_has_every_round() -> None:
    report = Report(2, 1.0, {})
    report.scenarios.append((SCENARIOS["unary-1k"], results()))
    whole = json.loads(report.json())
    scenario = whole["scenarios"]["unary-1k"]
    assert scenario["primary"] == "cpu_us"
    assert scenario["cases"]["10x10"]["gateway"]["cpu_us"] == {
        "median": 11.0,
        "low": 10.0,
        "high": 12.0,
        "values": [10.0, 12.0],
    }
    assert scenario["failures"] == {"64x1": {"nginx": "several\nlines"}}


def test_the_quick_line() -> None:
    line = quick.line(results(), compiled=True)
    assert "\n" not in line
    assert json.loads(line) == {
        "compiled": True,
        "cpu_us_per_request": {"gateway": {"10x10": 11.0}, "envoy": {"10x10": 22.0}},
        "ratio": {"envoy": {"10x10": 0.5}},
    }
