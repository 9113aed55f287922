"""``python -m benchmarks.micro``: the codec scenario by itself."""

from __future__ import annotations

import sys

from benchmarks.__main__ import main

main(["codec", *sys.argv[1:]])
