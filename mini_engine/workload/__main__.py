"""`python -m mini_engine.workload`: summarise traces, measure profiles, make the synthetic traces of `data/traces`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from mini_engine.workload import (
    load_trace,
    multi_turn,
    profile,
    save_azure,
    save_mooncake,
    shared_prefix,
    summarize,
    synthesize,
)
from mini_engine.workload.profile import from_json, to_json

ATTRIBUTION = {
    "azure": "Azure Public Dataset, LLM inference trace 2023 (Patel et al., Splitwise, ISCA 2024), CC-BY-4.0",
    "mooncake": "Mooncake traces (FAST'25 release), Apache-2.0",
}


def main(arguments: list[str] | None = None) -> int:
    """The commands `summarize`, `profile` and `synthesize`. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mini_engine.workload", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    summary = commands.add_parser("summarize", help="print what traces look like", allow_abbrev=False)
    summary.add_argument("traces", nargs="+", type=Path)
    measure = commands.add_parser(
        "profile", help="measure the statistics of traces and write them to FOLDER/profiles.json", allow_abbrev=False
    )
    measure.add_argument("traces", nargs="+", type=Path)
    measure.add_argument("--folder", type=Path, required=True)
    make = commands.add_parser(
        "synthesize", help="make the project's traces from FOLDER/profiles.json", allow_abbrev=False
    )
    make.add_argument("--folder", type=Path, required=True)
    make.add_argument("--requests", type=int, default=1000, help="per trace (default 1000)")
    make.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    try:
        {"summarize": _summarize, "profile": _profile, "synthesize": _synthesize}[chosen.command](chosen)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _summarize(chosen: argparse.Namespace) -> None:
    for path in chosen.traces:
        print(summarize(load_trace(path)))


def _profile(chosen: argparse.Namespace) -> None:
    measured = []
    for path in chosen.traces:
        name = path.stem.replace("AzureLLMInferenceTrace", "azure").removesuffix("_trace")
        attribution = next((text for start, text in ATTRIBUTION.items() if name.startswith(start)), "")
        measured.append(to_json(profile(load_trace(path), name, attribution)))
    (chosen.folder / "profiles.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def _synthesize(chosen: argparse.Namespace) -> None:
    for fields in json.loads((chosen.folder / "profiles.json").read_text(encoding="utf-8")):
        wanted = from_json(fields)
        trace = synthesize(wanted, chosen.requests, chosen.seed)
        save, suffix = (save_mooncake, "jsonl") if wanted.block_tokens else (save_azure, "csv")
        save(trace, chosen.folder / f"synthetic_{wanted.name}.{suffix}")
        print(summarize(trace))
    for trace, name in (
        (multi_turn(40, 5, seed=chosen.seed), "synthetic_multi_turn_block16"),
        (shared_prefix(200, 2000, seed=chosen.seed), "synthetic_shared_prefix_block16"),
    ):
        save_mooncake(trace, chosen.folder / f"{name}.jsonl")
        print(summarize(trace))


if __name__ == "__main__":
    sys.exit(main())
