"""What a lossy KV cache costs: loss on real text and facts found in a long one, by the way keys and values are kept.

    python benchmarks/kv_quant.py [--models smollm2-135m tiny-gqa] [--schemes ...] [--texts 5] [--haystacks 10] [--quick] [--output PATH]

loss       Nats per token over texts of 512 tokens, which each start without history, of a chapter of Moby-Dick that tiny-gqa
           was not trained on; 511 tokens of each are predicted. `worse_by` is the mean difference to fp32, token by token, with
           its standard error.
retrieval  Haystacks of exactly 512 tokens: a passage of Mansfield Park with four facts, "The number of Clara is 48213.", one
           in each quarter, and at the end a question about each. Found is what greedy decoding answers with exactly its five
           digits. A model that finds none with an exact cache, as tiny-gqa, has none to lose.

Every query reads what the cache would hold had the tokens come one at a time. Bytes are those of a cache after 512 tokens, scales
and zeros counted; fp32 is exact. One CPU thread, about five minutes of a core. Writes its figures, with machine, date and
command, to benchmarks/results/kv_quant.json.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common.report import RESULTS, store, version

from mini_engine.data_files import data_dir
from mini_engine.kv_quality import SCHEMES, haystacks, kv_bytes, losses, retrieved
from mini_engine.models import load_model

MODELS = ("smollm2-135m", "tiny-gqa")
TEXT, FILLER = "moby_dick_61.txt", "mansfield_park_45.txt"
LENGTH, NUM_FACTS = 512, 4


def measure(
    name: str, schemes: Sequence[str], num_texts: int, num_haystacks: int, length: int = LENGTH
) -> dict[str, Any]:
    """The figures of one model, by scheme; "fp32" is measured whether asked for or not."""
    loaded = load_model(name)
    encode = partial(loaded.tokenizer.encode, add_special_tokens=False)
    text, filler = (encode((data_dir() / "text" / file).read_text(encoding="utf-8")) for file in (TEXT, FILLER))
    if len(text) < num_texts * length:
        raise SystemExit(f"--texts {num_texts}: {TEXT} holds {len(text) // length} texts of {length} tokens")
    text = text[: num_texts * length]
    stacks = haystacks(encode, filler, num_haystacks, num_facts=NUM_FACTS, length=length)
    result: dict[str, Any] = {
        "predicted_tokens": num_texts * (length - 1),
        "facts": NUM_FACTS * len(stacks),
        "schemes": {},
    }
    print(f"\n{name}: {result['predicted_tokens']:,} tokens predicted, {result['facts']} facts asked for")
    print(
        f"{'':22}{'bytes/token':>12}{'loss':>9}{'perplexity':>12}{'worse by':>10}{'+-':>8}{'found, by quarter':>21}{'CPU s':>8}"
    )
    exact = None
    for scheme in dict.fromkeys(["fp32", *schemes]):
        began = time.process_time()
        nats = losses(loaded.model, text, SCHEMES[scheme], length)
        exact = nats if exact is None else exact
        found = [retrieved(loaded.model, stack, SCHEMES[scheme]) for stack in stacks]
        row = summary(nats, exact, found)
        row["bytes_per_token"] = kv_bytes(loaded.spec, SCHEMES[scheme], length) / length
        row["cpu_seconds"] = round(time.process_time() - began, 1)
        result["schemes"][scheme] = row
        quarters = f"{row['found']} {row['found_by_quarter']}"
        print(
            f"{scheme:22}{row['bytes_per_token']:>12,.1f}{row['loss']:>9.4f}{row['perplexity']:>12.2f}"
            f"{row['worse_by']:>+10.4f}{row['standard_error']:>8.4f}{quarters:>21}{row['cpu_seconds']:>8}",
            flush=True,
        )
    return result


def summary(nats: np.ndarray, exact: np.ndarray, found: Sequence[Sequence[bool]]) -> dict[str, Any]:
    """The row of one scheme, from the nats of every token, those of the exact cache, and the facts found by haystack."""
    difference = nats - exact
    return {
        "loss": round(float(nats.mean()), 5),
        "perplexity": round(math.exp(nats.mean()), 3),
        "worse_by": round(float(difference.mean()), 5),
        "standard_error": round(float(difference.std(ddof=1)) / math.sqrt(len(nats)), 5),
        "found": int(np.sum(found)),
        "found_by_quarter": np.sum(found, axis=0).tolist(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--schemes", nargs="+", choices=list(SCHEMES), default=list(SCHEMES))
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--haystacks", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one short text and haystack a model: to see that it runs")
    parser.add_argument("--output", type=Path, default=RESULTS / "kv_quant.json")
    args = parser.parse_args(arguments)
    length = LENGTH
    if args.quick:
        args.texts, args.haystacks, length = 1, 1, 192

    import torch

    torch.set_num_threads(1)
    about = {
        "threads": 1,
        "length": length,
        "text": TEXT,
        "filler": FILLER,
        "versions": {package: version(package) for package in ("torch", "numpy")},
    }
    models: dict[str, Any] = {}
    for name in args.models:
        models[name] = measure(name, args.schemes, args.texts, args.haystacks, length)
        store(args.output, about | {"models": models})  # as it comes: what is done stays if the rest fails


if __name__ == "__main__":
    main()
