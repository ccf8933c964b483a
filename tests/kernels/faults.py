"""Named faults in the kernels, a few characters of code each, and the check of `checks` that must notice.

`file` is in mini_engine/kernels/. Faults of the decode kernels are planted in both, where both have the line.
"""

from __future__ import annotations

from typing import NamedTuple

GQA, MLA, RANGE, COMBINE = "gqa_decode.py", "mla_decode.py", "split_range.py", "split_combine.py"
BOTH = (GQA, MLA)


class Fault(NamedTuple):
    name: str
    files: tuple[str, ...]
    right: str
    wrong: str
    check: str


FAULTS = [
    Fault("int32 offset: blocks times strides wrap around", BOTH, "other=0).to(tl.int64)", "other=0)", "far_blocks"),
    Fault("0 x NaN: values beyond the context are loaded", (GQA,), "v_at[:, None] + d[None, :], mask=tile,", "v_at[:, None] + d[None, :], mask=dims,", "ragged"),
    Fault("0 x NaN: latents beyond the context are loaded", (MLA,), "c[None, :], mask=live[:, None] & in_latent", "c[None, :], mask=in_latent", "ragged"),
    Fault("keys beyond the context are loaded", (GQA,), "k_at[:, None] + d[None, :], mask=tile,", "k_at[:, None] + d[None, :], mask=dims,", "reads"),
    Fault("rotary keys beyond the context are loaded", (MLA,), "r[None, :], mask=live[:, None] & in_rope", "r[None, :], mask=in_rope", "reads"),
    Fault("empty split: 0 / 0", BOTH, "some = tl.where(total == 0.0, 1.0, total)", "some = total", "ragged"),
    Fault("empty split: its log-sum-exp is that of one token", BOTH, "lse = top + tl.log2(some)", 'lse = tl.where(total == 0.0, 0.0, top + tl.log2(some))', "ragged"),
    Fault("empty split: combine reads what was never written", (COMBINE,), "counts = (weight > 0.0)[:, None] & (d < D)[None, :]", "counts = head[:, None] & (d < D)[None, :]", "ragged"),
    Fault("nothing but empty splits: -inf - -inf", (COMBINE,), 'top = tl.where(top == float("-inf"), 0.0, top)', "top = top + 0.0", "ragged"),
    Fault("nothing but empty splits: 0 / 0", (COMBINE,), "total = tl.where(total == 0.0, 1.0, total)", "total = total + 0.0", "ragged"),
    Fault("window off by one: the oldest token is dropped", (RANGE,), "tl.maximum(length - WINDOW, 0)", "tl.maximum(length - WINDOW + 1, 0)", "window"),
    Fault("window off by one: one token too many", (RANGE,), "tl.maximum(length - WINDOW, 0)", "tl.maximum(length - WINDOW - 1, 0)", "window"),
    Fault("the window is ignored", (RANGE,), "if WINDOW > 0:", "if WINDOW > 1000000:", "window"),
    Fault("missing rescale of what was summed", BOTH, "        acc *= shrink[:, None]\n", "", "large_scores"),
    Fault("missing rescale of the sum of weights", BOTH, "total = total * shrink + tl.sum(weights, 1)", "total = total + tl.sum(weights, 1)", "large_scores"),
    Fault("no running maximum", BOTH, "new_top = tl.maximum(top, tl.max(scores, 1))", "new_top = tl.zeros([BLOCK_H], dtype=tl.float32)", "large_scores"),
    Fault("the maximum starts at 0", BOTH, 'top = tl.full([BLOCK_H], float("-inf"), tl.float32)', "top = tl.zeros([BLOCK_H], tl.float32)", "low_scores"),
    Fault("one maximum for a whole tile of heads", BOTH, "new_top = tl.maximum(top, tl.max(scores, 1))", "new_top = tl.maximum(top, tl.max(tl.max(scores, 1), 0))", "unlike_heads"),
    Fault("values in the strides of the keys", (GQA,), "v_at = page * v_stride_n + slot * v_stride_p + kv_head * v_stride_h", "v_at = page * k_stride_n + slot * k_stride_p + kv_head * k_stride_h", "strides"),
    Fault("padded heads over the next group's", (GQA,), "heads_dims = (in_group < GROUP)[:, None] & dims", "heads_dims = (h < tl.num_programs(0) // HEAD_BLOCKS * GROUP)[:, None] & dims", "any_order"),
    Fault("tail block: its unused slots count as keys of zero", BOTH, 'scores = tl.where(live[None, :], scores, float("-inf"))', "scores = scores + 0.0", "ragged"),
    Fault("tail block: only whole tiles are read", BOTH, "range(begin, end, BLOCK_N)", "range(begin, end - BLOCK_N + 1, BLOCK_N)", "ragged"),
    Fault("tail block: the split's last token is lost", (RANGE,), "end = tl.minimum(begin + tokens, length)", "end = tl.minimum(begin + tokens, length - 1)", "ragged"),
    Fault("table tail read", BOTH, "n // PAGE, mask=live, other=0)", "n // PAGE)", "reads"),
    Fault("blocks are looked up by slot", BOTH, "n // PAGE, mask=live", "n % PAGE, mask=live & (n % PAGE < tl.cdiv(end, PAGE))", "ragged"),
    Fault("a group reads the next group's keys", (GQA,), "kv_head * k_stride_h", "(tl.num_programs(0) // HEAD_BLOCKS - 1 - kv_head) * k_stride_h", "ragged"),
    Fault("padded heads are stored", (GQA,), "heads_dims = (in_group < GROUP)[:, None] & dims", "heads_dims = (in_group < BLOCK_H)[:, None] & dims", "writes"),
    Fault("padded heads are stored", (MLA,), "heads = (h < H)[:, None]", "heads = (h < BLOCK_H)[:, None]", "writes"),
    Fault("splits overlap", (RANGE,), "begin = tl.minimum(first + split * tokens, length)", "begin = tl.minimum(first + split * (tokens - (tokens > 0)), length)", "ragged"),
    Fault("the value is as wide as the key", (MLA,), "in_latent = (c < DC)[None, :]", "in_latent = (c < DC + DR)[None, :]", "padded_latent"),
    Fault("the rotary part is forgotten", (MLA,), "scores = tl.dot(q_rope, tl.trans(rope), scores,", "scores = tl.dot(q_rope * 0.0, tl.trans(rope), scores,", "ragged"),
    Fault("a latent is loaded twice", (MLA,), "weights.to(q_latent.dtype), latent, acc,", "weights.to(q_latent.dtype), tl.load(pool_ptr + at + c[None, :], mask=live[:, None] & in_latent, other=0.0).to(q_latent.dtype), acc,", "reads"),
    Fault("scales of keys are forgotten", (GQA,), "            scores *= k_scale[None, :]\n", "", "int8"),
    Fault("scales of latents are forgotten in the scores", (MLA,), "            scores *= scale[None, :]\n", "", "int8"),
    Fault("scales of values are forgotten", (GQA,), "weights *= (v_scale / largest)[None, :]", "weights = weights / 1.0", "int8"),
    Fault("scales of latents are forgotten in the sum", (MLA,), "weights *= (scale / largest)[None, :]", "weights = weights / 1.0", "int8"),
    Fault("scales beyond the context are loaded", (GQA,), "vs_stride_p + kv_head * vs_stride_h, mask=live,", "vs_stride_p + kv_head * vs_stride_h, mask=n >= 0,", "int8"),
    Fault("scales beyond the context are loaded", (MLA,), "slot * scale_stride_p, mask=live,", "slot * scale_stride_p, mask=n >= 0,", "int8"),
    Fault("small scales vanish in a float16", (GQA,), "largest = tl.max(v_scale, 0)", "largest = tl.max(v_scale, 0) * 0.0 + 1.0", "small_values"),
    Fault("small scales vanish in a float16", (MLA,), "largest = tl.max(scale, 0)", "largest = tl.max(scale, 0) * 0.0 + 1.0", "small_values"),
]  # fmt: skip
