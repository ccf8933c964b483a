"""What a lossy KV cache costs: loss on real text and facts found in a long one, by the way keys and values are kept.

    python benchmarks/kv_quant.py [--models ...] [--schemes ...] [--texts 5] [--haystacks 10] [--quick] [--output PATH]

loss       Nats per token over texts of 512 tokens, which each start without history, of a chapter of Moby-Dick that tiny-gqa
           was not trained on; 511 tokens of each are predicted. `worse_by` is the mean difference to fp32, token by token, with
           its standard error.
retrieval  Haystacks of exactly 512 tokens: a passage of Mansfield Park with four facts, "The number of Clara is 48213.", one
           in each quarter, and at the end a question about each. Found is what greedy decoding answers with exactly its five
           digits. A model that finds none with an exact cache, as tiny-gqa, has none to lose.
pools      The same loss with the paged pools of the engine's torch backend, by kv_cache_dtype. tiny-mla caches a latent and has
           no other figures here.

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

from mini_engine.backends.kv_formats import FORMATS, bytes_per_token, kv_format
from mini_engine.data_files import data_dir
from mini_engine.kv_quality import SCHEMES, haystacks, kv_bytes, losses, pool_losses, retrieved
from mini_engine.models import load_model

MODELS = ("smollm2-135m", "tiny-gqa", "tiny-mla")
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
    about: dict[str, Any] = {"predicted_tokens": num_texts * (length - 1), "schemes": {}, "pools": {}}
    print(f"\n{name}: {about['predicted_tokens']:,} tokens predicted")
    print(
        f"{'':22}{'bytes/token':>12}{'loss':>9}{'perplexity':>12}{'worse by':>10}{'+-':>8}{'CPU s':>8}   facts found, by quarter"
    )
    if not loaded.spec.is_mla:
        stacks = haystacks(encode, filler, num_haystacks, num_facts=NUM_FACTS, length=length)
        about["facts"] = NUM_FACTS * len(stacks)
        exact = None
        for scheme in dict.fromkeys(["fp32", *schemes]):
            began = time.process_time()
            nats = losses(loaded.model, text, SCHEMES[scheme], length)
            exact = nats if exact is None else exact
            found = [retrieved(loaded.model, stack, SCHEMES[scheme]) for stack in stacks]
            row = summary(nats, exact, kv_bytes(loaded.spec, SCHEMES[scheme], length) / length, began)
            row["found"], row["found_by_quarter"] = int(np.sum(found)), np.sum(found, axis=0).tolist()
            about["schemes"][scheme] = row
            print_row(scheme, row)
    exact = None
    for dtype in FORMATS:
        began = time.process_time()
        nats = pool_losses(loaded.model, text, dtype, length)
        exact = nats if exact is None else exact
        size = bytes_per_token(loaded.spec, kv_format(dtype, loaded.model.dtype))
        about["pools"][dtype] = summary(nats, exact, size, began)
        print_row(f"pools in {dtype}", about["pools"][dtype])
    return about


def summary(nats: np.ndarray, exact: np.ndarray, size: float, began: float) -> dict[str, Any]:
    """A row of the results, from the nats of every token, those of the exact cache, the bytes per token and the start."""
    difference = nats - exact
    return {
        "bytes_per_token": size,
        "loss": round(float(nats.mean()), 5),
        "perplexity": round(math.exp(nats.mean()), 3),
        "worse_by": round(float(difference.mean()), 5),
        "standard_error": round(float(difference.std(ddof=1)) / math.sqrt(len(nats)), 5),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def print_row(name: str, row: dict[str, Any]) -> None:
    found = f"   {row['found']:>2} {row['found_by_quarter']}" if "found" in row else ""
    print(
        f"{name:22}{row['bytes_per_token']:>12,.1f}{row['loss']:>9.4f}{row['perplexity']:>12.2f}{row['worse_by']:>+10.4f}"
        f"{row['standard_error']:>8.4f}{row['cpu_seconds']:>8}{found}",
        flush=True,
    )


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
