"""Calls whose working is kept as text in workings.txt, and a reader of its arithmetic.

python -m tests.geometry.workings > tests/geometry/workings.txt
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from mini_engine import geometry, roofline
from mini_engine.catalog import get_model
from tests.geometry.valid_calls import ALL, Call, call

MLA = get_model("deepseek-v3")
# The branches that the calls of ALL leave out.
BRANCHES = [
    call(geometry.kv_elems_per_token, cfg=MLA),
    call(geometry.kv_elems_expanded, cfg=MLA),
    call(geometry.kv_bytes_per_token, cfg=dataclasses.replace(MLA, index_head_dim=128), kv_dtype="bf16"),
    call(geometry.kv_total_bytes, cfg=get_model("gemma-3-1b"), S=4096, B=3, kv_dtype="bf16"),
    call(geometry.kv_bytes_per_token_per_gpu, cfg=MLA, tp=8, kv_dtype="bf16"),
    call(geometry.param_breakdown, cfg=MLA),
    call(geometry.weight_bytes, cfg=get_model("mixtral-8x7b"), dtype="fp8", tp=4),
    call(geometry.kv_budget, hbm=80e9, weights=16e9, overhead=2e9, util="0.9"),
    call(geometry.max_concurrency, budget=8e9, kv_per_token=163840, S=2048, block=None),
    call(geometry.mla_reduction, baseline="deepseek-67b"),
    call(roofline.min_tokens_compute_bound, K=64, N=64, ridge=295, b=2),
    call(roofline.batch_for_ridge, weight_bytes=140e9, kv_per_token=327680, S=8192, flops_per_seq=140e9, ridge=295),
    call(roofline.prefill_flops, N=8e9, S=1000, L=32, n_q=32, d=128, causal=False, done=0),
]

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6)}
PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
UNITS |= {f"{prefix}{unit}": factor for prefix, factor in PREFIXES.items() for unit in ("B", "B/s", "FLOP", "FLOP/s")}
NUMBER = re.compile(r"(?<![\w.])((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-?\d+)?)(?: ([A-Za-z][\w/]*)|x)?")
COUNTED = re.compile(
    r"\b(?:token-forwards|scores per head and layer|bits per token|tokens|blocks|elements|requests|parameters)\b"
)
THREE_WAYS = re.compile(r"([\d,]+ B) = ([\d.,e-]+ GB) = ([\d.,e-]+ GiB)(?: \(([\d.,]+ [KMG]iB)\))?")


def value(term: str) -> float | None:
    """The number that a term of a working comes to; None for one with names in it."""

    def number(match: re.Match[str]) -> str:
        unit = match[2] or ""
        factor, rest = (UNITS[unit], "") if unit in UNITS else (1, unit)
        return f"({Fraction(match[1].replace(',', '')) * factor!r}) {rest}"

    text = NUMBER.sub(number, COUNTED.sub("", term))
    text = re.sub(r"\) (?:FLOP/B|tok/s|FLOP|B|s)\b", ")", text).replace("×", "*").strip()
    names = {"Fraction": Fraction, "ceil": math.ceil, "min": min, "max": max, "floor": math.floor}
    try:
        return float(eval(text, {"__builtins__": {}}, names))
    except (SyntaxError, NameError, TypeError):
        return None


def equations(text: str) -> Iterator[tuple[str, str]]:
    """Terms of a working that say they are equal, and that are both numbers."""
    for line in text.splitlines()[1:]:
        for ways in THREE_WAYS.findall(line):
            yield from ((ways[0], way) for way in ways[1:] if way)
        line = re.sub(r"(= ([\d,]+ B)), /", r"\1 ; \2 /", THREE_WAYS.sub(r"\1", line.rpartition(": ")[2]))
        for chain in re.split(r" ; |, at ", line):
            terms = [term for term in re.split(r"(?:^|\s)= ", chain) if value(term) is not None]
            yield from pairwise(terms)


def texts(calls: list[Call]) -> list[str]:
    return [each.function.explain(**each.arguments) for each in calls]


if __name__ == "__main__":
    print("\n\n".join(texts([*ALL, *BRANCHES])))
