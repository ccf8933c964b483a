"""Answers about memory: what is stored for a token, how many tokens fit, and when they have to go."""

from __future__ import annotations

from fractions import Fraction

from mini_engine.catalog import get_model
from mini_engine.geometry import (
    kv_bytes_per_token_per_gpu,
    kv_bytes_quant,
    kv_elems_expanded,
    kv_elems_per_token,
    max_concurrency,
    paged_utilization,
)
from mini_engine.geometry.shards import one_shard
from mini_engine.roofline import block_copy_bytes
from mini_engine.sizing.result import Sizing, sequences
from mini_engine.sizing.sizing import vary
from mini_engine.units import format_bytes, format_seconds, significant

SYSTEM_PROMPT = 2000
"""Tokens of the example."""


def prefix_holds(s: Sizing) -> str:
    """What does a prefix cache hold?"""
    block = s.block * s.kv_per_token_per_gpu
    whole = SYSTEM_PROMPT // s.block
    example = (
        f"fills {whole:,} whole block{'' if whole == 1 else 's'}, {format_bytes(whole * block)}, held once for all "
        "requests that begin with it"
        if whole
        else f"fills no block of {s.block:,}, so nothing of it is found again"
    )
    state = (
        f" The {len(s.model.layers_without_kv)} layers without K/V need their state at that place as well, which an "
        "engine must keep separately."
        if s.model.layers_without_kv
        else ""
    )
    return (
        f"The K/V of whole blocks of {s.block:,} tokens, {format_bytes(block)} each on every GPU, found by a hash of "
        "their tokens and of all tokens before them. Not text, not answers: a hit saves computing a prefix, and gives "
        f"the same output. A system prompt of {SYSTEM_PROMPT:,} tokens {example}.{state}"
    )


def no_query_heads(s: Sizing) -> str:
    """Why are there no query heads in the formula?"""
    m = s.model
    reason = "A query is used in the step that makes it and never again; keys and values are read in every later step."
    heads = f"{m.num_attention_heads} query heads"
    if m.is_mla:
        return (
            f"{reason} {m.name} has {heads}, and its cache does not even grow with heads: {m.latent_dim} elements per "
            "token and layer serve all."
        )
    q = m.num_attention_layers * m.num_attention_heads * m.head_dim
    kv = m.num_key_value_heads
    shared = (
        "each with K and V of its own"
        if kv == m.num_attention_heads
        else f"{significant(Fraction(m.num_attention_heads, kv))} to each of {kv} K/V head{'' if kv == 1 else 's'}"
    )
    return (
        f"{reason} {m.name} has {heads}, {shared}: its {q:,} query elements per token need no place, its "
        f"{kv_elems_per_token(m):,} elements of K and V do."
    )


def fp8(s: Sizing) -> str:
    """Does FP8 halve the KV cache?"""
    in_bf16, in_fp8 = vary(s, kv_dtype="bf16"), vary(s, kv_dtype="fp8")
    grouped = kv_bytes_quant(s.model, 8, 128, 2)
    text = (
        f"Its elements, yes: {in_bf16.kv_per_token:,} B per token become {in_fp8.kv_per_token:,} B. With a 16-bit scale "
        f"for every 128 elements it is {significant(grouped, 9)} B, {significant(grouped / in_bf16.kv_per_token)} of bf16."
    )
    m = s.model
    if m.is_mla and m.kv_lora_rank and m.qk_rope_head_dim:
        kept = m.kv_lora_rank + 2 * m.qk_rope_head_dim
        text += (
            f" If the {m.qk_rope_head_dim} rotary elements stay in 16 bits, a layer takes {kept:,} B per token instead "
            f"of {2 * m.latent_dim:,}."
        )
    if not s.weights_fit:
        return f"{text} The weights stay as they are, and here {s.obstacle.replace('the weights', 'they')}."
    return (
        f"{text} The weights stay as they are. At {s.context:,} tokens the budget holds "
        f"{sequences(in_fp8.concurrency)} instead of {in_bf16.concurrency:,}."
    )


def requests(s: Sizing) -> str:
    """Why not limit the number of requests?"""
    lengths = (max(1, s.context // 4), s.context, s.context * 4)
    if not s.weights_fit:
        sizes = ", ".join(
            f"{format_bytes(n * s.kv_per_token_per_gpu)} with {n:,} tokens" for n in dict.fromkeys(lengths)
        )
        return (
            f"Because requests differ in size. One takes, on each GPU, {sizes}. What is scarce is tokens, whoever they "
            f"belong to, so admit by tokens or blocks. Here {s.obstacle}, so there is no room for any."
        )
    fits = ", ".join(
        f"{max_concurrency(s.budget, s.kv_per_token_per_gpu, n, s.block):,} of {n:,} tokens"
        for n in dict.fromkeys(lengths)
    )
    pool = s.budget // (s.kv_per_token_per_gpu * s.block) * s.block
    return (
        f"Because requests differ in size: the same budget of {format_bytes(s.budget)} holds {fits}. What is scarce is "
        f"tokens: the pool has room for {pool:,} of them, whoever they belong to, so admit by tokens or blocks."
    )


def tensor_parallel(s: Sizing) -> str:
    """Does more tensor parallelism give more concurrency?"""
    m, found = s.model, []
    for tp in (1, 2, 4, 8, 16):
        other = vary(s, tp=tp)
        fits = sequences(other.concurrency) if other.weights_fit else other.obstacle
        found.append(f"tp {tp}: {kv_bytes_per_token_per_gpu(m, tp, s.kv_dtype):,} B per token per GPU, {fits}")
    heads = m.num_key_value_heads
    if m.is_mla:
        rule = (
            "Only through the weights. The latent is not split, so every GPU holds every token; that is why such models "
            "are often served with data-parallel attention."
        )
    elif heads == 1:
        rule = "Only through the weights. There is one K/V head, so every GPU holds a copy of all K/V."
    else:
        rule = (
            f"Up to a point. Weights and K/V heads are split, until each GPU has one of the {heads} K/V heads; beyond tp "
            f"{heads} heads are copied and only the weights shrink."
        )
    full = " (every layer counted in full)" if s.num_windowed_layers else ""
    return f"{rule} For sequences of {s.context:,} tokens{full}, {'; '.join(found)}."


def mla(s: Sizing) -> str:
    """What does MLA store?"""
    m = s.model
    if m.is_mla:
        keys = (m.qk_nope_head_dim or 0) + (m.qk_rope_head_dim or 0)
        ratio = Fraction(kv_elems_expanded(m), kv_elems_per_token(m))
        return (
            f"Per token and layer one latent vector of {m.kv_lora_rank} elements and one rotary key of "
            f"{m.qk_rope_head_dim}, shared by all {m.num_attention_heads} heads: {kv_elems_per_token(m):,} elements "
            f"over {m.num_attention_layers} layers. A key of {keys} and a value of {m.v_head_dim} for every head would "
            f"be {kv_elems_expanded(m):,}, {significant(ratio, 3)} times as many. num_key_value_heads is not part of it."
        )
    v3 = get_model("deepseek-v3")
    elems = Fraction(kv_elems_per_token(m), m.num_attention_layers)
    ratio = elems / v3.latent_dim
    compared = f"{significant(ratio, 3)} times as many" if ratio >= 1 else "fewer than such a latent takes"
    return (
        "Per token and layer one latent vector and one small rotary key, shared by all heads: "
        f"{v3.kv_lora_rank} + {v3.qk_rope_head_dim} = {v3.latent_dim} elements in {v3.name}. {m.name} stores keys and "
        f"values, {significant(elems, 6)} elements per attention layer, {compared}."
    )


def block_size(s: Sizing) -> str:
    """How do I choose the block size?"""
    lengths = [s.context // 8 + 7 * i for i in range(1, 17)]  # sixteen different lengths, none special
    shard = one_shard(s.model, s.tp)
    rows = [
        f"block {block}: at most {block - 1} idle tokens a request, {(block - 1) * s.kv_per_token_per_gpu:,} B per GPU; "
        f"utilization {float(paged_utilization(lengths, block)):.2%}; contiguous pieces of "
        f"{block_copy_bytes(shard, block, s.kv_dtype):,} B"
        for block in (8, 16, 32, 128)
    ]
    return (
        "Small blocks waste less and share prefixes more finely; large ones make fewer, longer copies and shorter "
        f"tables. For requests of {lengths[0]:,} to {lengths[-1]:,} tokens: {'. '.join(rows)}. 16 is vLLM's usual choice."
    )


def eviction(s: Sizing) -> str:
    """When does an entry of the prefix cache die?"""
    blocks = s.budget // (s.kv_per_token_per_gpu * s.block)
    rule = "Not when its request ends: the block stays, unreferenced, until the pool needs a block and it is the one unused for longest."
    if not blocks:
        return f"{rule} Here there is no room for a single block, so there is no cache to speak of."
    return (
        f"{rule} The pool has {blocks:,} blocks of {s.block:,} tokens, so {blocks * s.block:,} tokens of new K/V push "
        f"out whatever is not used again. At {significant(s.tokens_per_s)} generated tokens per second, the most there can be, that takes "
        f"{format_seconds(blocks * s.block / s.tokens_per_s)}; prompts come on top."
    )
