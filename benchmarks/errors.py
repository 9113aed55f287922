"""What can go wrong in a benchmark."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A process did not start or ended early, or load did not come back as it should."""
