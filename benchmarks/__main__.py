"""``python -m benchmarks [SCENARIO...]``: all scenarios when none is named.

Tables go to stdout, progress to stderr. Exit codes: 0 done, 1 the gateway (or everything) failed
in some case, 2 wrong usage.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from benchmarks import quick
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Harness, Options, Results, to_stderr
from benchmarks.peers import GATEWAY, INTERPRETED, PEERS, Peer
from benchmarks.peers.gateway import Gateway
from benchmarks.report import Report
from benchmarks.scenarios import SCENARIOS, Scenario

OTHERS = tuple(name for name in PEERS if name != GATEWAY)


def _names(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Names of peers, with commas between them."""
    if value is None:
        return None
    names = tuple(filter(None, value.split(",")))
    for name in names:
        if name not in OTHERS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(OTHERS)}")
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="SCENARIO...")
@click.option("--peers", callback=_names, help="Beside the gateway; default: all of them.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--work",
    type=click.FloatRange(0.001, 100),
    default=1.0,
    show_default=True,
    help="Multiplies the requests and seconds of each round.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write all figures here."
)
@click.option("--charts", type=click.Path(path_type=Path), help="Draw PNG files in this directory.")
@click.option("--quick", "is_quick", is_flag=True, help="One JSON line in less than a minute.")
def main(
    scenarios: tuple[str, ...],
    peers: tuple[str, ...] | None,
    rounds: int,
    work: float,
    json_file: Path | None,
    charts: Path | None,
    is_quick: bool,
) -> None:
    """Measure the gateway beside its peers. Scenarios: unary-1k, http1-1k, http1-to-h2, bodies,
    grpc-unary, grpc-tokens, sse-tokens, scale, ring, stall, codec, tls-1k, tls-handshakes,
    tls-idle, tls-ttfb; all when none is named."""
    # Leaves every context on the way out, so that no process stays behind.
    signal.signal(signal.SIGTERM, _terminate)
    try:
        if is_quick:
            names = peers if peers is not None else tuple(n for n in OTHERS if n != INTERPRETED)
            sys.exit(_quick(names, work))
        names = peers if peers is not None else OTHERS
        found, said = _installed(names)
        report = Report(rounds, work, said)
        with Harness(Options(found, rounds, work), to_stderr) as harness:
            for name in scenarios or SCENARIOS:
                to_stderr(f"== {name}")
                report.scenarios.append((SCENARIOS[name], _run(SCENARIOS[name], harness)))
    except BenchmarkError as error:
        to_stderr(str(error))
        sys.exit(1)
    print(report.markdown())
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_bytes(report.json())
    if charts is not None:
        _draw(report, charts)
    sys.exit(max((_code(results) for _, results in report.scenarios), default=0))


def _run(scenario: Scenario, harness: Harness) -> Results:
    """One scenario; when it can't go on, that is its result, and the others have their turn."""
    try:
        return scenario.run(harness)
    except BenchmarkError as error:
        to_stderr(str(error))
        return Results(failures={scenario.name: {GATEWAY: str(error)}})


def _quick(names: tuple[str, ...], work: float) -> int:
    found, _ = _installed(names)
    with Harness(Options(found, quick.ROUNDS, work)) as harness:
        results = quick.measure(harness)
    for case, failures in results.failures.items():
        for name, reason in failures.items():
            to_stderr(f"{case}: {name} failed: {reason}")
    print(quick.line(results, Gateway().compiled()))
    return _code(results)


def _installed(names: tuple[str, ...]) -> tuple[list[Peer], dict[str, str]]:
    """The gateway and those of ``names`` that are installed, and what to say of each."""
    found = []
    said = {}
    for name, peer in PEERS.items():
        if name != GATEWAY and name not in names:
            continue
        if peer.find() is not None:
            found.append(peer)
            said[name] = peer.version()
        elif name == GATEWAY:
            raise BenchmarkError(f"the gateway is not installed: {peer.package}")
        else:
            said[name] = f"skipped: not installed ({peer.package})"
            to_stderr(f"{name} {said[name]}")
    return found, said


def _draw(report: Report, directory: Path) -> None:
    try:
        drawn = report.draw(directory)
    except ImportError as error:
        to_stderr(f"no charts: {error}")
    else:
        to_stderr(f"drawn: {', '.join(map(str, drawn))}")


def _code(results: Results) -> int:
    """1 if the gateway failed somewhere, or nothing was measured."""
    gateway_failed = any(GATEWAY in failures for failures in results.failures.values())
    return 1 if gateway_failed or not results.cells else 0


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


if __name__ == "__main__":
    main()
