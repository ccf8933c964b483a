"""Where, when and how a figure was measured, stored beside it."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def machine() -> dict[str, object]:
    """The processor, its cores, and the system that ran the benchmark."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}


def version(package: str) -> str:
    """The installed version of a package, or "not installed"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def store(path: Path, results: dict[str, Any]) -> None:
    """Write results to a JSON file, under the command, date and machine they come from."""
    script = f"benchmarks/{Path(sys.argv[0]).name}"
    report = {
        "command": " ".join(["python", script, *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        **results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
