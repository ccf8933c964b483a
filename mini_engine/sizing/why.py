"""`mini-engine size --why`: twelve questions that learners ask, each answered with the numbers of the model at hand."""

from __future__ import annotations

from fractions import Fraction

from mini_engine.catalog import get_model
from mini_engine.geometry import (
    active_params,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    kv_bytes_quant,
    kv_elems_expanded,
    kv_elems_per_token,
    max_concurrency,
    paged_utilization,
    params,
)
from mini_engine.roofline import block_copy_bytes
from mini_engine.sizing import Sizing, size
from mini_engine.units import format_bytes, format_seconds, significant


def answers(s: Sizing) -> list[tuple[str, str]]:
    """(question, answer) twelve times. Every figure is computed from `s`."""
    return [
        ("Why is the GPU mostly idle while decoding?", _idle(s)),
        ("What does a prefix cache hold?", _prefix_holds(s)),
        ("Why are there no query heads in the formula?", _no_query_heads(s)),
        ("Does FP8 halve the KV cache?", _fp8(s)),
        ("Why not limit the number of requests?", _requests(s)),
        ("Does more tensor parallelism give more concurrency?", _tensor_parallel(s)),
        ("Why does quantization make decoding faster?", _quantization(s)),
        ("Why do mixtures of experts suit decoding?", _experts(s)),
        ("Does quantizing the KV cache cost accuracy?", _accuracy(s)),
        ("What does MLA store?", _mla(s)),
        ("How do I choose the block size?", _block_size(s)),
        ("When does an entry of the prefix cache die?", _eviction(s)),
    ]


def _vary(s: Sizing, **changes: object) -> Sizing:
    """The same sizing with some assumptions changed."""
    same = {
        name: getattr(s, name) for name in ("tp", "context", "batch", "kv_dtype", "dtype", "util", "overhead", "block")
    }
    same["memory"] = "nominal" if s.memory == s.gpu.memory_bytes else "reported"
    if not s.counted:
        same["num_params"] = s.num_params
    return size(s.model, s.gpu, **(same | changes))


def _idle(s: Sizing) -> str:
    busy = s.step.compute / s.step.total
    bytes_read = (s.step.weights + s.step.kv) * s.gpu.memory_bandwidth
    work = s.step.compute * s.flops
    return (
        f"A step of {s.batch} sequences reads {format_bytes(round(bytes_read))} on each GPU and does "
        f"{significant(work)} FLOP with them: "
        f"{significant(work / bytes_read)} FLOP per byte, where this GPU could do {significant(s.ridge)} in the "
        "time a byte takes. "
        f"Reading takes {format_seconds(s.step.weights + s.step.kv)}, computing {format_seconds(s.step.compute)}, "
        f"so the arithmetic units are busy {float(busy):.1%} of the step at best."
    )


def _prefix_holds(s: Sizing) -> str:
    block = s.block * s.kv_per_token_per_gpu
    tokens = 2000
    return (
        f"The K/V of whole blocks of {s.block} tokens, {format_bytes(block)} each on every GPU, found by a hash of "
        "their tokens and of all tokens "
        "before them. Not text, not answers: a hit saves computing a prefix, and gives the same output. A system "
        f"prompt of {tokens:,} tokens is "
        f"{tokens // s.block} whole blocks, {format_bytes(tokens // s.block * block)}, held once instead of once "
        f"for each of {s.batch} sequences."
    )


def _no_query_heads(s: Sizing) -> str:
    m = s.model
    if m.is_mla:
        return (
            "A query is used in the step that makes it and never again; keys and values are read in every later "
            f"step. {m.name} has "
            f"{m.num_attention_heads} query heads, and its cache does not even grow with KV heads: {m.latent_dim} "
            "elements per layer serve all."
        )
    q = m.num_attention_layers * m.num_attention_heads * m.head_dim
    return (
        "A query is used in the step that makes it and never again; keys and values are read in every later step. "
        f"{m.name} has "
        f"{m.num_attention_heads} query heads on {m.num_key_value_heads} KV heads: its {q:,} query elements per "
        "token need no place, "
        f"its {kv_elems_per_token(m):,} elements of K and V do."
    )


def _fp8(s: Sizing) -> str:
    bf16, fp8 = _vary(s, kv_dtype="bf16"), _vary(s, kv_dtype="fp8")
    grouped = kv_bytes_quant(s.model, 8, 128, 2)
    return (
        f"Its elements, yes: {bf16.kv_per_token:,} B per token become {fp8.kv_per_token:,} B. With a 16-bit scale "
        "for every 128 elements it is "
        f"{significant(grouped, 9)} B, {significant(grouped / bf16.kv_per_token)} of bf16. The weights stay. At "
        f"{s.context:,} tokens the budget holds "
        f"{fp8.concurrency} sequences instead of {bf16.concurrency}."
    )


def _requests(s: Sizing) -> str:
    lengths = [max(1, s.context // 4), s.context, s.context * 4]
    fits = ", ".join(
        f"{max_concurrency(s.budget, s.kv_per_token_per_gpu, length, s.block)} of {length:,} tokens"
        for length in lengths
        if length
    )
    pool = s.budget // (s.kv_per_token_per_gpu * s.block) * s.block
    return (
        f"Because requests differ in size: the same budget of {format_bytes(s.budget)} holds {fits}. What is scarce "
        "is tokens: the pool has room for "
        f"{pool:,} of them, whoever they belong to, so admit by tokens or blocks."
    )


def _tensor_parallel(s: Sizing) -> str:
    heads = s.model.num_key_value_heads
    found = []
    for tp in (1, 2, 4, 8, 16):
        per_gpu = kv_bytes_per_token_per_gpu(s.model, tp, s.kv_dtype)
        found.append(f"tp {tp}: {per_gpu:,} B per token per GPU, {_vary(s, tp=tp).concurrency} sequences")
    sharing = (
        "The latent is not split, so every GPU holds every token: only the weights shrink, which is why such models "
        "are often served with data-parallel attention."
        if s.model.is_mla
        else f"Weights and KV heads are split, until each GPU has one of the {heads} KV heads; beyond tp {heads} heads are copied and only the weights shrink."
    )
    return f"Up to a point. {'; '.join(found)} of {s.context:,} tokens. {sharing}"


def _quantization(s: Sizing) -> str:
    here, fp8 = _vary(s, dtype="bf16"), _vary(s, dtype="fp8")
    return (
        f"Because a decode step waits for bytes. With bf16 weights a step of {s.batch} sequences takes at least "
        f"{format_seconds(here.step.total)} "
        f"({format_seconds(here.step.weights)} of it reading weights, {format_seconds(here.step.kv)} K/V); with "
        "8-bit weights "
        f"{format_seconds(fp8.step.total)}, {significant(here.step.total / fp8.step.total, 3)} times less. It also "
        "leaves "
        f"{format_bytes(fp8.budget)} for K/V instead of {format_bytes(here.budget)}."
    )


def _experts(s: Sizing) -> str:
    m = s.model
    if not s.counted:
        return (
            "A token uses only some of the parameters, so one sequence reads less per step than the size of the "
            "model suggests. How much of "
            f"the {s.num_params:,} parameters given for {m.name} a step reads was not counted: here it reads all of "
            "them. Its K/V, "
            f"{s.kv_per_token:,} B per token, does not depend on its experts."
        )
    shown = m if m.num_experts else get_model("mixtral-8x7b")
    few, many = active_params(shown, 1), active_params(shown, 64)
    about = (
        "" if m.num_experts else f"{m.name} is dense: every step reads all {params(m):,} parameters. As an example, "
    )
    return (
        f"{about}{shown.name} has {params(shown):,} parameters and uses {few:,} of them per token, "
        f"{significant(Fraction(few, params(shown)), 3)} "
        f"of all, so one sequence reads that much less. A batch reads more: 64 tokens can touch {many:,}. The KV "
        "cache does not depend on the "
        f"experts at all: {kv_bytes_per_token(shown):,} B per token."
    )


def _accuracy(s: Sizing) -> str:
    int8, int4 = kv_bytes_quant(s.model, 8, 128, 2), kv_bytes_quant(s.model, 4, 32, 2, 2)
    elems = kv_elems_per_token(s.model)
    return (
        "It rounds, so yes, by an amount that only a test on your task can tell. Symmetric 8-bit codes of a group "
        "are off by at most half a step, "
        f"1/254 of the group's largest value ({1 / 254:.2%}); 4-bit codes by 1/14 ({1 / 14:.1%}). For "
        f"{s.model.name} that buys "
        f"{significant(int8, 9)} B per token ({significant(int8 * 8 / elems, 5)} bits per element, scales included) "
        f"and {significant(int4, 9)} B "
        f"({significant(int4 * 8 / elems, 5)} bits) against {kv_bytes_per_token(s.model):,} B in bf16. Keys have "
        "outlier channels, so per-channel scales for K matter."
    )


def _mla(s: Sizing) -> str:
    m = s.model
    if m.is_mla:
        return (
            f"Per token and layer one latent vector of {m.kv_lora_rank} elements and one rotary key of "
            f"{m.qk_rope_head_dim}, shared by all "
            f"{m.num_attention_heads} heads: {kv_elems_per_token(m):,} elements over {m.num_attention_layers} "
            "layers. Keys and values per head would be "
            f"{kv_elems_expanded(m):,}, {significant(Fraction(kv_elems_expanded(m), kv_elems_per_token(m)), 3)} "
            "times as many. num_key_value_heads is not part of it."
        )
    v3 = get_model("deepseek-v3")
    heads, head_dim = m.kv_shapes[0]
    ratio = Fraction(2 * heads * head_dim, v3.latent_dim)
    return (
        f"Per token and layer one latent vector and one small rotary key, shared by all heads: {v3.kv_lora_rank} + "
        f"{v3.qk_rope_head_dim} = "
        f"{v3.latent_dim} elements in {v3.name}. {m.name} stores K and V of {heads} heads of {head_dim}: "
        f"{2 * heads * head_dim:,} elements per layer, "
        f"{significant(ratio, 3)} times as many."
    )


def _block_size(s: Sizing) -> str:
    lengths = [s.context // 8 + 7 * i for i in range(1, 17)]  # sixteen different lengths, none special
    rows = [
        f"{block}: at most {block - 1} idle tokens a request ({format_bytes((block - 1) * s.kv_per_token_per_gpu)} "
        "per GPU), "
        f"utilization {float(paged_utilization(lengths, block)):.2%}, contiguous pieces of "
        f"{block_copy_bytes(s.model, block, s.kv_dtype):,} B"
        for block in (8, 16, 32, 128)
    ]
    return (
        "Small blocks waste less and share prefixes more finely; large ones make fewer, longer copies and shorter "
        "tables. For requests of "
        f"{lengths[0]:,} to {lengths[-1]:,} tokens, block " + "; ".join(rows) + ". 16 is vLLM's usual choice."
    )


def _eviction(s: Sizing) -> str:
    blocks = s.budget // (s.kv_per_token_per_gpu * s.block)
    rule = "Not when its request ends: the block stays, unreferenced, until the pool needs a block and it is the one unused for longest."
    if not blocks:
        return f"{rule} Here the weights leave room for no block at all, so there is no cache to speak of."
    return (
        f"{rule} The pool has {blocks:,} blocks of {s.block} tokens, so {blocks * s.block:,} tokens of new K/V push "
        "out whatever is not used again. "
        f"At {significant(s.tokens_per_s)} generated tokens per second alone that takes "
        f"{format_seconds(blocks * s.block / s.tokens_per_s)}; prompts come on top."
    )
