"""A client in a process of its own: ``python -m benchmarks.tls.worker CA.pem``.

It says ``ready``, then takes a job (JSON) on each line of stdin and answers with one line of JSON.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from benchmarks.tls import burst
from benchmarks.tls.burst import Burst
from benchmarks.tls.status import StatusError
from benchmarks.tls.visits import Visitor, Visits

Job = Visits | Burst


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """``error`` says why a job went wrong; ``times_us`` is one time for each visit."""

    times_us: list[float] = []
    error: str = ""


def do(job: Job, visitor: Visitor) -> Answer:
    """One job."""
    try:
        if isinstance(job, Visits):
            return Answer(visitor.visit_all(job))
        burst.run(job, visitor)
        return Answer()
    except (OSError, StatusError) as error:
        return Answer(error=str(error) or repr(error))


def main() -> None:
    """Until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("authority", type=Path)
    visitor = Visitor(parser.parse_args().authority)
    decoder = msgspec.json.Decoder(Job)
    print("ready", flush=True)
    for line in sys.stdin:
        answer = do(decoder.decode(line), visitor)
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main()
