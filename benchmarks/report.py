"""Results as Markdown, JSON and charts."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import Results
from benchmarks.peers import GATEWAY
from benchmarks.scenarios.base import Figure, Scenario, Target
from benchmarks.spread import Summary

BASES = (GATEWAY, "compiled")
"""Whose figures are divided by the others'; the first one that a case has."""

_COLORS = ("#1b6ca8", "#8bbcdf", "#d1495b", "#edae49", "#66a182", "#8d6a9f", "#777777")


@dataclass
class Report:
    """A whole run. ``peers`` has each peer's version, or why it was skipped."""

    rounds: int
    work: float
    peers: Mapping[str, str]
    scenarios: list[tuple[Scenario, Results]] = field(default_factory=list)

    def markdown(self) -> str:
        """All tables."""
        lines = ["# Benchmarks", "", machine(), ""]
        lines += [f"- {name}: {what}" for name, what in self.peers.items()]
        lines += ["", f"Medians of {self.rounds} rounds."]
        for scenario, results in self.scenarios:
            lines += ["", f"## {scenario.name}: {scenario.title}", ""]
            lines += _table(scenario, results)
        return "\n".join(lines) + "\n"

    def json(self) -> bytes:
        """Everything, the single rounds included, indented."""
        scenarios = {}
        for scenario, results in self.scenarios:
            scenarios[scenario.name] = {
                "primary": scenario.figures[0].key,
                "cases": {
                    case: {
                        contender: {key: _summary(value) for key, value in figures.items()}
                        for contender, figures in contenders.items()
                    }
                    for case, contenders in results.cells.items()
                },
                "targets": [
                    {
                        "case": target.case,
                        "peer": target.peer,
                        "most": target.most,
                        "ratio": ratio(results, target.case, target.peer, scenario.figures[0].key),
                    }
                    for target in scenario.targets
                ],
                "failures": results.failures,
                "notes": results.notes,
            }
        whole = {
            "machine": machine(),
            "rounds": self.rounds,
            "work": self.work,
            "peers": self.peers,
            "scenarios": scenarios,
        }
        return msgspec.json.format(msgspec.json.encode(whole), indent=2)

    def draw(self, directory: Path) -> list[Path]:
        """One PNG for each scenario. ImportError without matplotlib."""
        plot = _pyplot()
        directory.mkdir(parents=True, exist_ok=True)
        drawn = []
        for scenario, results in self.scenarios:
            if results.cells:
                drawn.append(directory / f"{scenario.name}.png")
                _chart(plot, scenario, results, drawn[-1])
        return drawn


def machine() -> str:
    """One line about where this ran."""
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = os.cpu_count()
    system = f"{platform.system()} {platform.release()}"
    return f"{cores} cores, {model}, {system}, Python {platform.python_version()}"


def ratio(results: Results, case: str, contender: str, figure: str) -> float | None:
    """The base's median by the contender's; None if one is missing, 0, or they are the same."""
    contenders = results.cells.get(case, {})
    base = next((name for name in BASES if name in contenders), None)
    if base is None or base == contender:
        return None
    ours = results.median(case, base, figure)
    theirs = results.median(case, contender, figure)
    return None if ours is None or not theirs else ours / theirs


def _table(scenario: Scenario, results: Results) -> list[str]:
    primary = scenario.figures[0]
    titles = ["case", "", *(figure.title for figure in scenario.figures), "spread", "ratio"]
    rows = [titles, ["---", "---", *("---:" for _ in titles[2:])]]
    for case, contenders in results.cells.items():
        for contender, figures in contenders.items():
            share = ratio(results, case, contender, primary.key)
            spread = figures.get(primary.key)
            rows.append(
                [
                    case,
                    contender,
                    *(_number(figures.get(figure.key), figure) for figure in scenario.figures),
                    "" if spread is None else f"{spread.spread:.0%}",
                    "" if share is None else f"{share:.2f}",
                ]
            )
    lines = [f"| {' | '.join(row)} |" for row in rows] if results.cells else []
    explained = f"spread and ratio are of {primary.title}; ratio is the gateway's by the peer's."
    if results.cells:
        lines += ["", explained]
    lines += [_target(target, results, primary) for target in scenario.targets]
    for case, failures in results.failures.items():
        lines += [
            f"- {case}: {name} failed: {_one_line(reason)}" for name, reason in failures.items()
        ]
    lines += [f"- {note}" for note in dict.fromkeys(results.notes)]
    return lines


def _target(target: Target, results: Results, figure: Figure) -> str:
    share = ratio(results, target.case, target.peer, figure.key)
    said = f"- target: {target.case}, {figure.title} at most {target.most:.2f} of {target.peer}'s"
    if share is None:
        return f"{said}: not measured"
    return f"{said}: {share:.2f}, {'met' if share <= target.most else 'NOT met'}"


def _number(summary: Summary | None, figure: Figure) -> str:
    return "" if summary is None else f"{summary.median:,.{figure.digits}f}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "median": summary.median,
        "low": summary.low,
        "high": summary.high,
        "values": summary.values,
    }


def _pyplot() -> Any:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def _chart(plot: Any, scenario: Scenario, results: Results, path: Path) -> None:
    """Bars of the first figure, grouped by case, with the lowest and highest as whiskers."""
    figure = scenario.figures[0]
    cases = list(results.cells)
    contenders = _in_order(name for cells in results.cells.values() for name in cells)
    width = 0.8 / max(1, len(contenders))
    canvas, axes = plot.subplots(figsize=(max(6.0, 1.3 * len(cases) + 3), 4.2))
    for index, contender in enumerate(contenders):
        places, heights, below, above = [], [], [], []
        for place, case in enumerate(cases):
            summary = results.cells[case].get(contender, {}).get(figure.key)
            if summary is not None:
                places.append(place + (index - (len(contenders) - 1) / 2) * width)
                heights.append(summary.median)
                below.append(summary.median - summary.low)
                above.append(summary.high - summary.median)
        if places:
            color = _COLORS[index % len(_COLORS)]
            axes.bar(places, heights, width, label=contender, color=color)
            axes.errorbar(places, heights, (below, above), fmt="none", ecolor="#333", lw=0.8)
    axes.set_xticks(range(len(cases)), cases, rotation=30 if len(cases) > 6 else 0, ha="center")
    axes.set_ylabel(figure.title)
    axes.set_title(scenario.title)
    axes.legend(fontsize="small")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    canvas.tight_layout()
    canvas.savefig(path, dpi=120)
    plot.close(canvas)


def _in_order(names: Iterable[str]) -> Sequence[str]:
    return list(dict.fromkeys(names))
