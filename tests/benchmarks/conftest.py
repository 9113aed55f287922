"""``benchmarks`` is not installed: it is found in the source tree, behind everything else.

Behind, so that a test run against an installed gateway sees that one and no other.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
