"""Benchmarks are scripts; what they share is imported the way they import it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
