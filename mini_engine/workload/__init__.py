"""Request traces: load the public formats, summarise them, generate synthetic ones.

Public traces are never part of the project. Lessons use the synthetic ones in `data/traces/`, whose names begin with
`synthetic_` and which were made from published statistics by the commands in `data/traces/README.md`.
"""

from __future__ import annotations

import os
from pathlib import Path

from mini_engine.arguments import shown
from mini_engine.data_files import data_dir
from mini_engine.workload.azure import load_azure, save_azure
from mini_engine.workload.conversations import multi_turn, shared_prefix
from mini_engine.workload.generate import synthesize
from mini_engine.workload.mooncake import load_mooncake, save_mooncake
from mini_engine.workload.prefix_reuse import PrefixReuse, prefix_reuse
from mini_engine.workload.profile import Profile, profile, profiles
from mini_engine.workload.summary import Lengths, TraceSummary, summarize
from mini_engine.workload.trace import Trace, TraceError, TraceRequest

__all__ = [
    "Lengths",
    "PrefixReuse",
    "Profile",
    "Trace",
    "TraceError",
    "TraceRequest",
    "TraceSummary",
    "load_azure",
    "load_mooncake",
    "load_trace",
    "multi_turn",
    "prefix_reuse",
    "profile",
    "profiles",
    "save_azure",
    "save_mooncake",
    "shared_prefix",
    "summarize",
    "synthesize",
    "trace_path",
]


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace by its suffix: .csv as Azure 2023, .jsonl as Mooncake; a bare name is looked up among the
    project's own.
    """
    found = Path(path)
    if not _exists(found) and found.name == str(path) and _exists(trace_path(found.name)):
        found = trace_path(found.name)
    if not _exists(found):
        raise FileNotFoundError(
            f"there is no trace {shown(str(path))}: neither a file nor one of {', '.join(own_traces())}"
        )
    if found.suffix == ".csv":
        return load_azure(found)
    if found.suffix == ".jsonl":
        # a project trace says in its name how many tokens a hash id stands for, where that is not Mooncake's 512
        blocks = [int(part[5:]) for part in found.stem.split("_") if part.startswith("block") and part[5:].isdigit()]
        return load_mooncake(found, *blocks)
    raise TraceError(
        f"{found}: the suffix {found.suffix!r} is not known; .csv is read as Azure 2023, .jsonl as Mooncake"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a character that no path has
        return False


def trace_path(name: str) -> Path:
    """Where a trace of the project lies: in the package when it is installed, in `data/traces` in a checkout."""
    return data_dir() / "traces" / name


def own_traces() -> list[str]:
    """File names of the project's own synthetic traces."""
    folder = trace_path("profiles.json").parent
    return sorted(path.name for path in folder.glob("*") if path.suffix in (".csv", ".jsonl"))
