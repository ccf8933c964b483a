"""Lesson 02, bytes of a cache from a configuration: what a right answer satisfies, and the wrong ones that people write."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.whole_numbers import expect_whole

Config = Mapping[str, Any]
Size = Callable[..., Any]


def kv_bytes(config: Config, tokens: int, batch: int = 1, bytes_per_number: int = 2) -> int:
    """Bytes of K and V of `batch` sequences of `tokens` tokens, for the `config.json` of a Llama-like model."""
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_hidden_layers"] * heads * size * tokens * batch * bytes_per_number


DTYPES = {1: np.int8, 2: np.float16, 4: np.float32, 8: np.float64}


def count_arrays(config: Config, tokens: int, batch: int, bytes_per_number: int) -> int:
    """The same by making the arrays, one K and one V a layer and sequence, and adding up what NumPy says they take: the oracle."""
    heads, size = config.get("num_key_value_heads"), config.get("head_dim")
    heads = config["num_attention_heads"] if heads is None else heads
    size = config["hidden_size"] // config["num_attention_heads"] if size is None else size
    pairs = config["num_hidden_layers"] * batch
    arrays = (np.empty((tokens, heads, size), DTYPES[bytes_per_number]) for _ in range(2 * pairs))
    return sum(array.nbytes for array in arrays)


def config_of(
    layers: int, q_heads: int, kv_heads: int | None, hidden: int, head_dim: int | None = None
) -> dict[str, Any]:
    """A `config.json` as a dict. None leaves a field out."""
    fields = {
        "num_hidden_layers": layers,
        "num_attention_heads": q_heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "head_dim": head_dim,
        "intermediate_size": 3 * hidden,
        "vocab_size": 1000,
    }
    return {name: value for name, value in fields.items() if value is not None}


LLAMA_3_70B = config_of(80, 64, 8, 8192)
OPT_13B = config_of(40, 40, None, 5120)
QWEN3_0_6B = config_of(28, 16, 8, 1024, 128)


def _case(candidate: Size, config: Config, tokens: int, batch: int = 1, width: int = 2, note: str = "") -> None:
    told = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim")
    shown = ", ".join(f"{name}={config[name]}" for name in told if name in config)
    words = f"{shown}; tokens={tokens}, batch={batch}, bytes_per_number={width}{note}"
    expect_whole(candidate(config, tokens, batch, width), count_arrays(config, tokens, batch, width), words)


def _layers(candidate: Size) -> None:
    for layers in (1, 2, 3):
        _case(candidate, config_of(layers, 1, 1, 1, 1), 1)


def _kv_heads(candidate: Size) -> None:
    for q_heads, heads in ((2, 1), (4, 2), (9, 3), (8, 8)):
        _case(candidate, config_of(1, q_heads, heads, q_heads, 1), 1)


def _no_kv_heads(candidate: Size) -> None:
    for q_heads in (1, 2, 6):
        _case(candidate, config_of(1, q_heads, None, q_heads, 1), 1, note=", no num_key_value_heads")


def _no_head_dim(candidate: Size) -> None:
    for q_heads, heads, hidden in ((2, 2, 8), (4, 2, 8), (4, 2, 10), (4, 4, 11)):
        _case(candidate, config_of(1, q_heads, heads, hidden), 1, note=", no head_dim")


def _head_dim(candidate: Size) -> None:
    for q_heads, heads, hidden, size in ((2, 2, 8, 16), (4, 1, 12, 8), (16, 8, 64, 5)):
        _case(candidate, config_of(1, q_heads, heads, hidden, size), 1)


def _null(candidate: Size) -> None:
    for name in ("num_key_value_heads", "head_dim"):
        _case(candidate, config_of(2, 4, 2, 8, 2) | {name: None}, 1, note=": null in the file is None here")


def _multiplies(candidate: Size) -> None:
    shape = config_of(2, 4, 2, 8)
    for tokens, batch, width in ((1, 1, 2), (1, 1, 4), (2, 1, 1), (5, 1, 1), (1, 3, 1), (7, 4, 8), (0, 2, 2)):
        _case(candidate, shape, tokens, batch, width)
    for arguments, want in (((3,), 3 * 32), ((3, 2), 3 * 2 * 32)):
        expect_whole(
            candidate(shape, *arguments), want, f"2 layers, 2 K/V heads of size 2, called with {arguments} only"
        )


def _real(candidate: Size) -> None:
    for name, config, tokens, batch, width, want in (
        ("Llama-3-70B, one token", LLAMA_3_70B, 1, 1, 2, 327_680),
        ("Llama-3-70B, 100 tokens, 3 sequences", LLAMA_3_70B, 100, 3, 2, 98_304_000),
        ("OPT-13B, one token", OPT_13B, 1, 1, 2, 819_200),
        ("Qwen3-0.6B, one token", QWEN3_0_6B, 1, 1, 2, 114_688),
        ("3 layers, 2 K/V heads of 10**17 + 1, 100 tokens", config_of(3, 4, 2, 8, 10**17 + 1), 100, 1, 1, 1200 * 10**17 + 1200),
    ):  # fmt: skip
        expect_whole(
            candidate(config, tokens, batch, width),
            want,
            f"{name}, {width} byte{'' if width == 1 else 's'} a number: {config}",
        )


LAYERS = "every layer keeps K and V"
KV_HEADS = "K/V heads count, query heads do not"
NO_KV_HEADS = "no num_key_value_heads: every query head has its own"
NO_HEAD_DIM = "no head_dim: it is hidden_size // num_attention_heads"
HEAD_DIM = "head_dim is taken when it is given"
NULL = "null means missing"
MULTIPLIES = "tokens, sequences and bytes multiply"
REAL = "real models, to the byte"


def _wrong(config: Config, tokens: int, batch: int = 1, bytes_per_number: int = 2, *, slip: str) -> Any:
    """A wrong answer, by the name of its slip."""
    q_heads, heads = config["num_attention_heads"], config.get("num_key_value_heads")
    given = config.get("head_dim")
    size = given or config["hidden_size"] // q_heads
    unrounded = {
        "head_dim from K/V heads": config["hidden_size"] // (heads or q_heads),
        "head_dim by /": config["hidden_size"] / q_heads,
        "int of all": config["hidden_size"] / q_heads,
        "head_dim unrounded": Fraction(config["hidden_size"], q_heads),
        "head_dim rounded": round(config["hidden_size"] / q_heads),
        "head_dim rounded up": -(-config["hidden_size"] // q_heads),
        "rounds too late": Fraction(config["hidden_size"], q_heads),
    }
    size = given or unrounded.get(slip, size)
    if slip == "head_dim derived":
        size = config["hidden_size"] // q_heads
    if slip == "key error on null":
        heads = config.get("num_key_value_heads", q_heads)
        size = config.get("head_dim", size)
    heads = {"query heads": q_heads, "one K/V head": heads or 1, "key error on null": heads}.get(slip, heads or q_heads)
    parts = {
        "pair": 1 if slip == "one 2" else 2,
        "layers": 1 if slip == "one layer" else config["num_hidden_layers"],
        "heads": heads,
        "size": size,
        "tokens": tokens,
        "batch": 1 if slip == "no batch" else batch,
        "bytes": 2 if slip == "always 2 bytes" else bytes_per_number,
    }
    if slip in ("int of all", "rounds too late"):
        return int(math.prod(parts.values()))
    if slip == "int of a float":
        return int(math.prod(map(float, parts.values())))
    if slip == "float":
        return float(math.prod(parts.values())) / 1.0
    if slip == "int64":
        return (math.prod(parts.values()) + 2**63) % 2**64 - 2**63
    return math.prod(parts.values())


def _mutant(slip: str, caught_by: str, why: str) -> Mutant:
    return Mutant(slip, partial(_wrong, slip=slip), caught_by, why)


def _with_get(config: Config, tokens: int, batch: int = 1, bytes_per_number: int = 2) -> Any:
    heads, size = config.get("num_key_value_heads"), config.get("head_dim")
    if heads is None:
        heads = config["num_attention_heads"]
    if size is None:
        size = config["hidden_size"] // config["num_attention_heads"]
    per_layer = tokens * heads * size * bytes_per_number
    return batch * sum(per_layer + per_layer for _ in range(config["num_hidden_layers"]))


def _token_by_token(config: Config, tokens: int, batch: int = 1, bytes_per_number: int = 2) -> Any:
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or int(config["hidden_size"] / heads)
    total = 0
    for _ in range(batch):
        for _ in range(tokens):
            for _ in range(config["num_hidden_layers"]):
                total += 2 * kv_heads * size * bytes_per_number
    return total


KV_BYTES = Exercise(
    id="02.kv_bytes",
    title="Bytes of a cache, from a config.json",
    reference=kv_bytes,
    properties=[
        Property(LAYERS, _layers),
        Property(KV_HEADS, _kv_heads),
        Property(NO_KV_HEADS, _no_kv_heads),
        Property(NO_HEAD_DIM, _no_head_dim),
        Property(HEAD_DIM, _head_dim),
        Property(NULL, _null),
        Property(MULTIPLIES, _multiplies),
        Property(REAL, _real),
    ],
    mutants=[
        _mutant("one 2", LAYERS, "There are two factors of 2: K and V, and in bf16 two bytes a number."),
        _mutant("one layer", LAYERS, "Each layer has keys and values of its own."),
        _mutant("query heads", KV_HEADS, "Queries are not kept. With 64 query heads on 8 K/V heads this is 8 times too much."),
        _mutant("one K/V head", NO_KV_HEADS, "An old configuration does not name K/V heads: then every query head has its own."),
        _mutant("head_dim derived", HEAD_DIM, "hidden / heads is a guess. Published calculators got Qwen3 wrong by it."),
        _mutant("head_dim by /", NO_HEAD_DIM, "`/` makes the size a float, and all that follows."),
        _mutant("head_dim unrounded", NO_HEAD_DIM, "A head has a whole number of numbers: 10 // 4 is 2."),
        _mutant("rounds too late", NO_HEAD_DIM, "Round the head size, not the product: each of 4 heads has 10 // 4 = 2."),
        _mutant("int of all", NO_HEAD_DIM, "Round the head size, not the product."),
        _mutant("head_dim rounded", NO_HEAD_DIM, "The rule is `//`, which rounds down: 11 // 4 is 2."),
        _mutant("head_dim rounded up", NO_HEAD_DIM, "The rule is `//`, which rounds down: 10 // 4 is 2."),
        _mutant("head_dim from K/V heads", NO_HEAD_DIM, "The hidden size is shared out among query heads, not K/V heads."),
        _mutant("key error on null", NULL, "Many files hold null. The key is there, its value is not."),
        _mutant("always 2 bytes", MULTIPLIES, "Right for bf16 only."),
        _mutant("no batch", MULTIPLIES, "Sequences share weights, not K and V."),
        _mutant("float", LAYERS, "A float holds whole numbers exactly only up to 2 to the power of 53."),
        _mutant("int of a float", REAL, "The float has rounded before int() sees it."),
        _mutant("int64", REAL, "A machine integer of 64 bits starts again below zero. Python's does not."),
    ],
    alternatives=[_with_get, _token_by_token],
)  # fmt: skip
