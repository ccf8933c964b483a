# ---
# jupyter:
#   course:
#     translated: false
# ---

# %% [markdown] lang="en" tags=["goals"]
# # 05 · KV quantization, and lossy ways to shrink the cache
#
# **Half the bytes hold twice the requests. The art is in who shares a scale and where it begins. The proof is a number you measured.**
#
# 60 to 90 minutes · NumPy, no GPU · after lesson 01
#
# After this lesson you can
#
# - count what a quantized cache really takes, scales and zeros included;
# - write an int8 quantizer and a cache that runs in the engine, and say why keys want another grouping than values;
# - measure what a compression costs, with a test that bad quantizers do not pass, and say when a window loses.

# %%
from functools import partial
from textwrap import shorten

import numpy as np

from mini_engine import LLM, SamplingParams, get_model
from mini_engine.attention import IntCodec, causal_attention, fp8_e4m3
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.panels import p05_quantization as pictures
from mini_engine.course.panels import p05_trade_off as panels
from mini_engine.data_files import data_dir
from mini_engine.geometry import kv_bytes_hybrid, kv_bytes_per_token, kv_bytes_quant
from mini_engine.models import load_model

tiny = load_model("tiny-gqa", backend="numpy")
model, tokenizer, spec = tiny.model, tiny.tokenizer, tiny.spec

# %% [markdown] lang="en"
# ## The pain
#
# The cache is too large, so use fewer bits. The obvious way: cut the range up to the largest number into equal steps, and
# round everything to a step. Here is the engine with that in the place where it reads K and V.


# %% tags=["claim-crude"]
def crudely(x, bits):
    """All of x rounded to steps of one size: the largest number divided by the largest code."""
    step = np.abs(x).max() / (2 ** (bits - 1) - 1)
    return np.rint(x / step) * step


def attention_through(keys, values):
    """Attention that reads K and V the way a cache would give them back."""
    return lambda q, k, v, scale, offset=0: causal_attention(q, keys(k), values(v), scale, offset)


question, greedily = "Emma was", SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
for bits in (16, 8, 4, 3, 2):
    rounded = partial(crudely, bits=bits)
    llm = LLM(tiny, attention=attention_through(rounded, rounded))
    output = llm.generate([question], greedily, progress=False)[0].outputs[0]
    print(f"{bits:2} bits: {' '.join((question + output.text).split())}")

# %% [markdown] lang="en"
# Eight bits: the same words. Four and three: other words. Two: a broken record. But words look good long after a model got worse,
# so you will measure. You will find that 3 bits can be much better than these 3 bits. Two things change it: who shares a
# step, and where the steps begin.
#
# First, what is there to win?
#
# ## What one byte costs
#
# A token of Llama-3-70B leaves 163,840 numbers in the cache. How many bytes each takes is your choice. Say that two GPUs share
# the model, and that each has 8 GB left for its half ([lesson 02](lessons/02_kv_cache_size.ipynb)). How many requests of
# 8,192 tokens fit?

# %% tags=["claim-bytes-per-dtype"]
llama = get_model("llama-3-70b")
print("dtype   B per token        MiB   requests of 8,192 tokens in 8 GB, on each of two GPUs")
for dtype in ("fp32", "bf16", "fp8"):
    size = kv_bytes_per_token(llama, dtype)
    print(f"{dtype:<6} {size:12,} {size / 2**20:10g} {8 * 10**9 // (size // 2 * 8192):10}")

# %% [markdown] lang="en"
# From bf16 to fp8, the requests more than double, as 5 was rounded down. A decode step also reads half the bytes.
#
# But integers need the size of their step, the **scale**. A code of 93 means nothing without it. Small groups of numbers share
# one, and some formats also store where the group starts, the **zero**. These cost bytes.

# %%
predict("05.bits", value=None)

# %% [markdown] lang="en"
# ## Exercise 5.1 - count the scales
#
# Difficulty 1/5 · importance 4/5 · 5 minutes · about 2 lines
#
# Write `quantized_bytes(numbers, bits, group, scale_bytes, zero_bytes)`: the bytes that `numbers` numbers take.
#
# - A code takes `bits` bits. Codes are packed: two of 4 bits share a byte.
# - Every `group` numbers share one scale of `scale_bytes` bytes, and a zero of `zero_bytes`, if any. `group` divides `numbers`.
# - Any exact kind of number will do.
#
# Small case: 32 numbers of 4 bits in one group, with a scale of 2 bytes: 16 + 2 = 18.


# %% exercise="quantized_bytes"
def quantized_bytes(numbers, bits, group, scale_bytes, zero_bytes=0):
    """Bytes of codes, scales and zeros."""
    ### BEGIN SOLUTION
    return numbers * bits / 8 + numbers / group * (scale_bytes + zero_bytes)
    ### END SOLUTION


# %% test="quantized_bytes" points=1
quantized_bytes = check("05.quantized_bytes", quantized_bytes)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Two sums: all codes, and all scales and zeros. How many groups are there?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Bits of all codes, in bytes. Then the number of groups, and what each adds.
#
# </details>
#
# Now the layouts that people use, and what their names leave out:

# %% tags=["claim-scales-counted"]
layouts = {  # bits, group, bytes of a scale, bytes of a zero
    "int8, groups of 128": (8, 128, 2, 0),
    "q8_0 of llama.cpp": (8, 32, 2, 0),
    "int4, groups of 32, zero": (4, 32, 2, 2),
    "q4_0 of llama.cpp": (4, 32, 2, 0),
    "int2, groups of 32, zero": (2, 32, 2, 2),
}
print("layout                      bits a number   of bf16   B per token, Llama-3-70B")
for name, layout in layouts.items():
    size = float(quantized_bytes(163_840, *layout))
    assert size == kv_bytes_quant(llama, *layout)  # the package's calculator
    print(f"{name:<26} {size * 8 / 163_840:14} {size / 327_680:9.5f} {size:12,.0f}")

# %% [markdown] lang="en"
# "4-bit" is 4.5 or 5 bits, "2-bit" is 3.
#
# ## A scale and whole numbers
#
# A **symmetric** quantizer with codes from -127 to 127 works like this, for one group of numbers x:
#
# $$\text{scale} = \frac{\max |x|}{127} \qquad \text{code} = \mathrm{round}\Big(\frac{x}{\text{scale}}\Big) \qquad x \approx \text{code} \cdot \text{scale}$$
#
# A step is the scale. So no number is off by more than half its group's scale.
#
# Our arrays are x[T, K, D]: tokens, heads, channels. The **axis** says which numbers share a scale.
#
# - `axis=-1`: the channels of one token and head. One scale **per token**, shape [T, K, 1].
# - `axis=0`: all tokens of one channel. One scale **per channel**, shape [1, K, D].
#
# ## Exercise 5.2 - a quantizer, and the way back
#
# Difficulty 3/5 · importance 5/5 · 25 minutes · about 7 lines
#
# Write `quantize(x, axis, bits=8)`. Return `(codes, scale)`.
#
# - Codes are `int8`, in the shape of x. They run from -largest to largest, with `largest = 2 ** (bits - 1) - 1`.
# - The scale is `float16`, in the shape of x with 1 in the place of `axis`. It is stored, so it is rounded too.
# - A number comes back within half a scale, of the scale that is stored.
# - A group of zeros comes back as zeros. Turn no NaN into int8: the result is undefined.
#
# And `dequantize(codes, scale)`: codes times scale, in float32. Widen both first, as NumPy multiplies int8 by float16 in float16.
#
# Small case: x = [1, 2, 4] has a scale of 4 / 127 = 0.0315 and the codes 32, 64 and 127.


# %% exercise="quantize"
def quantize(x, axis, bits=8):
    """x -> codes (int8, x's shape) and scale (float16); numbers along `axis` share a scale."""
    ### BEGIN SOLUTION
    largest = 2 ** (bits - 1) - 1
    scale = (np.abs(x).max(axis=axis, keepdims=True) / largest).astype(np.float16)
    step = np.where(scale == 0, 1, scale).astype(np.float64)
    codes = np.clip(np.rint(x / step), -largest, largest)
    return codes.astype(np.int8), scale
    ### END SOLUTION


def dequantize(codes, scale):
    """codes (int8) and scale (float16) -> the numbers, in float32."""
    ### BEGIN SOLUTION
    return codes.astype(np.float32) * scale.astype(np.float32)
    ### END SOLUTION


# %% test="quantize" points=3
quantize = check("05.quantize", quantize)
dequantize = check("05.dequantize", dequantize)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `np.abs(x).max(axis=axis, keepdims=True)` has the shape that the scale needs.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# First the scale, as it is stored. Then divide x by it, in float64; take care where it is 0. `np.rint` rounds, `astype` cuts.
#
# </details>
# <details><summary>Hint 3: "codes fit the scale that is stored" fails</summary>
#
# You divide by the exact scale and store a rounded one, or you divide in float16. 127 times a small difference is not small.
#
# </details>
#
# ## What the model loses
#
# A chapter of Moby-Dick that the model never saw is the judge. The **loss** is how badly the model guesses each next token, in
# nats. Exact and lossy runs read the same 255 tokens, so compare them token by token. After the ± stands one standard error of
# the mean difference. What is below two of them could be noise.

# %% tags=["claim-int8-free"]
text = tokenizer.encode((data_dir() / "text" / "moby_dick_61.txt").read_text(encoding="utf-8"))[:256]


def losses(attention):
    """Nats of each of the 255 next tokens of `text`."""
    logits = model.forward(text, range(len(text)), lambda layer, q, k, v: attention(q, k, v, spec.head_dim**-0.5))
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(logits).sum(axis=1))[:-1] - logits[np.arange(len(text) - 1), text[1:]]


def there_and_back(x, axis=-1, bits=8):
    """What your quantizer makes of x."""
    return dequantize(*quantize(x, axis, bits))


def cost(attention):
    """What this attention costs against the exact one, in nats a token, with its standard error."""
    worse = losses(attention) - exact
    return f"{worse.mean():+7.3f} ± {worse.std() / len(worse) ** 0.5:.3f}"


exact = losses(causal_attention)
print(f"exact                                   {exact.mean():7.3f}")
for bits in (8, 4, 3, 2):
    mine = partial(there_and_back, bits=bits)
    print(f"your quantizer, {bits}-bit codes, per token {cost(attention_through(mine, mine))} nats a token")
for bits in (3, 2):
    rounded = partial(crudely, bits=bits)
    print(f"one step for everything, {bits} bits        {cost(attention_through(rounded, rounded))}")

# %% [markdown] lang="en"
# Eight bits cost nothing that can be measured here, and four cost little. Two cost half a nat: the perplexity, e to the
# loss, grows by more than half. With their scales, the 2-bit codes take 2.5 bits. One step for everything at 3 bits
# costs less than half of that. Why are the 2-bit codes so bad? Look at the numbers themselves.
#
# ## Keys have loud channels
#
# Real keys and values of layer 1, from the chapter. A column is a channel, a row the mean of 8 tokens. Printed above it:
# the largest magnitudes of the five loudest channels, divided by the median channel's.


# %% tags=["claim-loud-channels"]
kept = {}


def keep_all(layer, q, k, v):
    """Exact attention that also keeps what it was given."""
    kept[layer] = (q, k, v)
    return causal_attention(q, k, v, spec.head_dim**-0.5)


def loudest(x, count=5):
    """Largest magnitude of the loudest channels, over that of the median channel."""
    largest = np.abs(x).max(axis=0).ravel()
    return np.sort(largest)[::-1][:count] / np.median(largest)


model.forward(text, range(len(text)), keep_all, [0])
print("         five loudest channels of the keys      and of the values")
for layer, (_, keys, values) in kept.items():
    ratios = ["  ".join(f"{ratio:.1f}" for ratio in loudest(x)) for x in (keys, values)]
    print(f"layer {layer}  {ratios[0]:<38} {ratios[1]}")
q, k, v = kept[1]
picture(pictures.loudness, keys=k, values=v)

# %% [markdown] lang="en"
# In layers 1 to 3, two or three channels of the keys reach three times the median. Fainter stripes, such as columns 9 and 43, reach
# twice. Values show no stripes, and in layer 0 keys are like values. Columns 41 and 57 hand over to each other: RoPE slowly
# turns one vector through both.
#
# With one scale per token, a loud channel and its neighbours share. A guess, with numbers like those in the picture:

# %%
predict("05.neighbours", value=None)

# %% [markdown] lang="en"
# ## Who shares a scale
#
# So cut the table the other way. Give each channel of the keys a scale of its own.

# %% tags=["diagram", "claim-neighbours"]
token = np.concatenate([[14.0], np.linspace(-4.4, 4.4, 31)]).reshape(1, 1, 32)
for bits in (4, 2):
    codes, scale = quantize(token, -1, bits)
    quiet = np.unique(codes[0, 0, 1:])
    print(f"{bits} bits: scale {float(scale[0, 0, 0]):g}, codes of the 31 quiet channels: {quiet.tolist()}")
loud = np.abs(k[:, 1]).max(axis=0) > 2.5 * np.median(np.abs(k).max(axis=0))
for bits in (4, 2):
    for axis, by in ((-1, "token"), (0, "channel")):
        zeros = np.mean(quantize(k, axis, bits)[0][:, 1, ~loud] == 0)
        print(f"real keys, {bits} bits per {by}: {zeros:.0%} of the quiet channels' codes are 0")
svg(*pictures.who_shares_a_scale())

# %% [markdown] lang="en"
# At 4 bits, a quarter of the quiet channels' codes are 0, and the loss hardly moved. At 2 bits, nearly all of them are.
#
# From here on we use the engine's codecs. `IntCodec` packs codes of 4 and 2 bits and shares scales in smaller groups. With
# `group=32` that is 32 channels of one token, or 32 tokens of one channel. (Your `axis=0` shared over all tokens.)
#
# ## Where the steps begin: the zero
#
# At 2 bits, symmetric codes are -1, 0 and 1: three of the four there are. And the numbers of a loud channel are far from 0,
# but near each other, so most of the range is empty. An **asymmetric** quantizer starts at the group's least value, its
# **zero**, and stores that too:
#
# $$\text{zero} = \min x \qquad \text{scale} = \frac{\max x - \min x}{2^\text{bits} - 1} \qquad \text{code} = \mathrm{round}\Big(\frac{x - \text{zero}}{\text{scale}}\Big) \qquad x \approx \text{zero} + \text{code} \cdot \text{scale}$$
#
# Who shares a scale, and where it begins: two choices, four answers.

# %% tags=["claim-zero"]


def through(codec):
    """x there and back through one of the engine's codecs."""
    return lambda x: codec.decode(codec.encode(x)).astype(np.float64)


group = k[:32, :, :]
print(f"channel 9 of head 1, tokens 0 to 31: from {group[:, 1, 9].min():.1f} to {group[:, 1, 9].max():.1f}")
for zero in (False, True):
    back = through(IntCodec(2, "channel", group=32, symmetric=not zero))(group)
    words = ", ".join(f"{x:.1f}" for x in np.unique(back[:, 1, 9]))
    print(f"  2 bits {'with' if zero else 'without'} a zero, it comes back as {words}")

print("\n2-bit codes, groups of 32       K and V per token   K per channel, V per token")
for zero in (False, True):
    per = {by: through(IntCodec(2, by, group=32, symmetric=not zero)) for by in ("token", "channel")}
    bits = float(quantized_bytes(32, 2, 32, 2, 2 * zero)) / 4
    row = [cost(attention_through(per[by], per["token"])) for by in ("token", "channel")]
    print(f"{'with' if zero else 'without'} a zero, {bits:g} bits".ljust(32) + f"{row[0]:<20}{row[1]}")

# %% [markdown] lang="en"
# Along a row, the bits are equal: keys per channel halve the cost without a zero, and save five sixths of it with one. Down a
# column, the zero takes half a bit and saves more still. You need both. Together, 3 bits cost nothing that you can tell from noise;
# one step for everything, also 3 bits, cost 0.172.
#
# What happens to every channel and token, at 4 bits with a zero:

# %% tags=["claim-error-by-channel"]
picture(pictures.errors, keys=k, values=v, height=3.6)

# %% [markdown] lang="en"
# Top left: with one scale per token, a quiet channel is off by up to a third of its own size. Per channel, the keys' error halves.
# The loud channels then do best, as their numbers lie close together: the zero again. For values, below, the two ways come out even.
#
# Now keys and values apart, the other one exact (the costs need not add up):

# %% tags=["claim-keys-or-values"]
per = {by: through(IntCodec(2, by, group=32, symmetric=False)) for by in ("token", "channel")}
for by in per:
    print(f"2-bit codes with a zero, keys per {by:<9} {cost(attention_through(per[by], lambda x: x))}")
for by in per:
    print(f"2-bit codes with a zero, values per {by:<7} {cost(attention_through(lambda x: x, per[by]))}")

# %% [markdown] lang="en"
# The keys need the grouping. For values the error bars overlap, and per channel is if anything better. So why per token? For
# a reason of order. A token's scale is known as soon as the token is there. A channel's group must wait for its last token.
#
# That is **KIVI** (Liu et al. 2024, [arXiv:2402.02750](https://arxiv.org/abs/2402.02750)): keys per channel, values per token, a
# zero in every group, 2-bit codes. On larger models its authors find that values per channel lose clearly.
#
# Try it. The left bar is what a number takes; every dot is one setting, the ring is yours. Attention may be off by a tenth
# where the loss shows nothing: it is one of many terms in a token's state, and the loss asks for the next token only.

# %% tags=["claim-trade-off"]
trade_off = panels.TradeOff(q, k, v)
panel(trade_off.draw, bits={4: [2, 4, 8]}, group={32: [8, 16, 32]}, layout=list(panels.LAYOUTS))

# %% [markdown] lang="en"
# ## Exercise 5.3 - a cache that keeps int8
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 15 lines
#
# Rounding on the way to attention saves nothing. Write the cache that keeps the codes, with the face of lesson 01's:
# `Int8KVCache(num_layers, capacity, num_kv_heads, head_dim)`.
#
# - `append(layer, k, v)` takes T new tokens of one layer, k[T, K, D] and v[T, K, D]. It quantizes them with one scale per token
#   and head, and keeps codes and scales.
# - It returns all that the layer holds so far, the new tokens included, dequantized: (k_all[S, K, D], v_all[S, K, D]).
# - What comes back for a token never changes again, from its first `append` on.
# - `nbytes` is what `capacity` tokens take: 1 byte a number and 2 a scale. Keep no floats beside them.
# - `num_tokens` counts the tokens that every layer holds. One token too many raises `MemoryError`, names the capacity and
#   changes nothing.


# %% exercise="Int8KVCache"
class Int8KVCache:
    """K and V of one sequence as int8 codes, with a float16 scale for every token and head."""

    def __init__(self, num_layers, capacity, num_kv_heads, head_dim):
        ### BEGIN SOLUTION
        shape = (num_layers, capacity, num_kv_heads)
        self.capacity = capacity
        self.codes = [np.zeros((*shape, head_dim), dtype=np.int8) for _ in "kv"]
        self.scales = [np.zeros((*shape, 1), dtype=np.float16) for _ in "kv"]
        self.lengths = [0] * num_layers
        ### END SOLUTION

    @property
    def num_tokens(self):
        ### BEGIN SOLUTION
        return min(self.lengths)
        ### END SOLUTION

    @property
    def nbytes(self):
        ### BEGIN SOLUTION
        return sum(array.nbytes for array in (*self.codes, *self.scales))
        ### END SOLUTION

    def append(self, layer, k, v):
        ### BEGIN SOLUTION
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.capacity:
            raise MemoryError(f"{end} tokens do not fit into a capacity of {self.capacity}")
        for x, codes, scales in zip((k, v), self.codes, self.scales):
            codes[layer, start:end], scales[layer, start:end] = quantize(x, axis=-1)
        self.lengths[layer] = end
        k_all, v_all = (dequantize(c[layer, :end], s[layer, :end]) for c, s in zip(self.codes, self.scales))
        return k_all, v_all
        ### END SOLUTION


# %% test="Int8KVCache" points=3
Int8KVCache = check("05.int8_cache", Int8KVCache)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Start from the cache of lesson 01. In place of two float arrays you need four: codes and scales, for K and for V.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. Codes: int8 `[L, capacity, K, D]`. Scales: float16 `[L, capacity, K, 1]`. Once for K, once for V.
# 2. `append`: check the room, quantize with `axis=-1`, write codes and scales at the layer's length, move the length on.
# 3. Return `dequantize` of the first `end` rows, for K and for V.
#
# </details>
# <details><summary>Hint 3: "what comes back for a token never changes" fails</summary>
#
# You return the new tokens as they came, and rounded the next time. Return what the codes say.
#
# </details>
#
# The engine takes it with one argument:

# %% tags=["claim-engine-runs-int8", "claim-bytes-checked"]
from mini_engine.attention import QuantizedKVCache, kivi_cache

longer = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
caches = {
    "float64, exact": "contiguous",
    "int8, yours, 8.5 bits a number": Int8KVCache,
    "int4 per token, 4.5 bits": partial(QuantizedKVCache, keys=IntCodec(4), values=IntCodec(4)),
}
outputs = [LLM(tiny, cache=c).generate([question], longer, progress=False)[0].outputs[0] for c in caches.values()]
for name, output in zip(caches, outputs):
    same = next((i for i, (a, b) in enumerate(zip(output.token_ids, outputs[0].token_ids)) if a != b), 40)
    print(f"{name}: the first {same} of 40 tokens are the exact ones")
    print(f"    {shorten(question + output.text, 108, placeholder=' ...')}")

shape = (spec.num_hidden_layers, 992, spec.num_key_value_heads, spec.head_dim)
reserved, engines = Int8KVCache(*shape), kivi_cache(bits=2, group=32)(*shape)
for layer in range(spec.num_hidden_layers):
    engines.append(layer, *np.zeros((2, *shape[1:])))
print("\n992 tokens            reported by the cache    by the formula")
for name, cache, layout in (("int8, yours", reserved, (8, 32, 2)), ("int2, KIVI", engines, (2, 32, 2, 2))):
    print(f"{name:<20} {cache.nbytes:20,} B {float(992 * kv_bytes_quant(spec, *layout)):15,.0f} B")
print(f"{'bf16':<20} {'':>22} {992 * kv_bytes_per_token(spec, 'bf16'):15,} B")

# %% [markdown] lang="en"
# Your int8 cache writes the exact words. The other changes the text, at a token where two words were close. Is that worse
# text? One sample cannot say.
#
# The bytes agree with the formula. 992 tokens are 31 full groups of 32. What is left over waits in float32 until its group is
# full, so in a short context KIVI saves little.
#
# ## fp8: a byte with a point in it
#
# GPUs also compute with **fp8**. The kind used for caches, e4m3, has a sign, 4 bits of exponent and 3 bits after the leading one.
# Every number brings its exponent, so it works without a scale. Some engines add one per tensor, to shift its range.

# %%
predict("05.fp8", value=None)

# %% tags=["claim-fp8"]
print("x:        ", *(f"{x:8g}" for x in (0.75, 0.78, 17, 75, 1000)))
print("becomes:  ", *(f"{float(fp8_e4m3(x)):8g}" for x in (0.75, 0.78, 17, 75, 1000)))
x = np.linspace(1, 448, 100_000)
print(f"largest error over size, from 1 to 448: {np.max(np.abs(fp8_e4m3(x) - x) / x):.4f}; 1/17 is {1 / 17:.4f}")
small = np.linspace(2**-9, 2**-6, 1000)
print(f"from 2^-9 to 2^-6: {np.max(np.abs(fp8_e4m3(small) - small) / small):.2f}")
print("error over size        keys   values   worse by")
for name, f in {"fp8 e4m3": fp8_e4m3, "int8 per token": there_and_back}.items():
    off = [np.linalg.norm(f(x) - x) / np.linalg.norm(x) for x in (k, v)]
    print(f"{name:<18}{off[0]:9.4f}{off[1]:9.4f}  {cost(attention_through(f, f))}")
for kind in ("auto", "fp8", "int8"):
    llm = LLM("tiny-gqa", backend="torch", kv_cache_dtype=kind, kv_cache_bytes=2**20)
    output = llm.generate([question], greedily, progress=False)[0].outputs[0]
    room, same = llm.engine.stats().num_free_blocks * 16, output.token_ids == outputs[0].token_ids[:24]
    size = llm.engine.backend.kv_bytes_per_token
    print(f"paged engine, {kind!r}: {size:,} B a token, {room:,} tokens in 1 MiB, the exact words: {same}")
picture(pictures.number_lines, height=2.4)

# %% [markdown] lang="en"
# Int8 spends its codes evenly, fp8 near 0. So fp8 does not mind a loud channel. From 2^-6 to 448, each number is off by a
# seventeenth at most, loud or quiet. Below, its steps stop shrinking; above, it clips.
#
# On these keys and values, int8 is four times as exact, and neither cost can be told from noise. The paged engine takes either
# with one option, `kv_cache_dtype`. Here `'auto'` is float32, so fp8 takes a quarter, not half. Int8 takes an eighth
# more than fp8, as this engine's scales are float32; with 2-byte scales it would be a sixteenth.
#
# ## Every compression needs a regression test
#
# Somebody rewrites the quantizer to make it faster. How would you know that it still works? Two questions, two tests.
#
# 1. *Does the code do what it promises?* Test the promise: half a scale.
# 2. *Is the promise good enough for the model?* Measure the model.
#
# Here are wrong quantizers, with keys per channel and values per token. Does the loss find them? Does a loose bound? We take that
# of a test of vLLM's int8 cache: an error of 0.1 plus a tenth of the number
# ([test_per_token_kv_cache.py](https://github.com/vllm-project/vllm/blob/main/tests/quantization/test_per_token_kv_cache.py), read in 2026).

# %% tags=["claim-loss-misses-bugs"]
from mini_engine.course.exercises.e05_check_quantizer import WRONG

normal, caught = np.random.default_rng(0).normal(size=(42, 8, 128)), 0
with np.errstate(invalid="ignore"):
    for name, roundtrip in WRONG.items():
        passes = all(np.allclose(roundtrip(normal, axis), normal, rtol=0.1, atol=0.1) for axis in (-1, 0))
        caught += not passes
        worse = cost(attention_through(partial(roundtrip, axis=0), partial(roundtrip, axis=-1)))
        print(f"{name:<31}{'within 0.1' if passes else 'caught':<12}{worse}")
print(f"the loose bound catches {caught} of {len(WRONG)}")

# %% [markdown] lang="en"
# Three stand out in the loss. Cutting in place of rounding costs next to nothing. Seven bits look like a gain. NaN for zeros shows
# nothing, as this text has no group of zeros. Yours will, some day. The loose bound lets ten times the promise pass, as
# half a scale is about 0.01 here. Neither finds them all. A loss answers the second question, not the first.
#
# ## Exercise 5.4 - a test that bad quantizers cannot pass
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 8 lines
#
# Write `check_quantizer(roundtrip)`. `roundtrip(x, axis)` takes x[T, K, D] to 8 bits and back. Raise `AssertionError` if it breaks
# the promise, and return quietly if it keeps it.
#
# - The promise: each number is off by at most half a scale. The scale is the largest magnitude of its group, divided by 127.
# - Allow a fiftieth more than half: right ones round the stored scale in different ways.
# - Keep the largest magnitude of every group between 0.01 and 1,000,000, or at 0. There, a float16 scale is precise.
# - Think about the numbers you draw. Each mistake needs a place to show: a loud channel, a quiet token, a negative peak, a
#   group of zeros, both axes.


# %% exercise="check_quantizer"
def check_quantizer(roundtrip):
    """Raise AssertionError unless roundtrip(x, axis) is an 8-bit quantizer and its way back."""
    ### BEGIN SOLUTION
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 2, 8)) * 10.0 ** rng.uniform(-1, 1, size=(16, 2, 8))
    x[1:] *= 3
    x[3] = 0
    x[:, 1, 5] = -30 * np.abs(x[:, 1, 5])
    for axis in (-1, 0):
        half = 0.5 * np.abs(x).max(axis=axis, keepdims=True) / 127
        assert np.all(np.abs(roundtrip(x, axis) - x) <= 1.02 * half), f"axis {axis}"
    ### END SOLUTION


# %% test="check_quantizer" points=2
check_quantizer = check("05.check_quantizer", check_quantizer)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The check asks for one first: the quantizer that cuts. It is off by up to a whole scale, so a bound of half a scale finds it.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Draw x with very different sizes. Set one token to 0. Make one channel loud and negative. For each axis, compute half a scale of
# every group from x itself, and assert that no error is larger.
#
# </details>
# <details><summary>Hint 3: "zeros become NaN" slips through</summary>
#
# Every comparison with NaN is false. Assert that all errors are small, not that none is large.
#
# </details>
#
# ### The second question, on a real model
#
# For the second question you need the model that you will serve, and tasks like those of your users. So the project measured
# SmolLM2-135M: the loss on a held-out chapter, and **retrieval**. Each of ten texts of 512 tokens hides four facts, one in each
# quarter, and asks for them at the end. A fact reads "The number of Clara is 48213".
#
# Exact is float32 here. Int8 has a scale for each token and head, int4 and int2 one for 32 numbers.

# %% tags=["nbval-ignore-output", "claim-real-model", "claim-window-real"]
import json

stored = json.loads((data_dir().parent / "benchmarks/results/kv_quant.json").read_text(encoding="utf-8"))
smol, small = (stored["models"][name] for name in ("smollm2-135m", "tiny-gqa"))
print(f"{stored['command']}, {stored['date']}: {smol['predicted_tokens']:,} tokens, {smol['facts']} facts")
numbers = smol["schemes"]["fp32"]["bytes_per_token"] / 4
print("SmolLM2-135M             bits   B a token   worse by, nats   facts  by quarter     tiny-gqa, worse by")
for name, row in smol["schemes"].items():
    costs = [f"{r['worse_by']:+.3f} ± {r['standard_error']:.3f}" for r in (row, small["schemes"][name])]
    bits = f"{row['bytes_per_token'] * 8 / numbers:g}"
    found = f"{row['found']:>8}  {row['found_by_quarter']!s:<14}"
    print(f"{name:<24}{bits:>5}{row['bytes_per_token']:>12,.0f}   {costs[0]}{found} {costs[1]}")

# %% [markdown] lang="en"
# Compare at equal bits.
#
# - **8 bits** cost nothing, in loss or in facts. Fp8 takes 11,520 B a token, int8 11,880 B, as it has scales.
# - **4.5 bits.** Per token, the loss is a tenth of a nat and nearly half of the facts are gone. KIVI's grouping costs a fifth of
#   that, and 28 facts are found.
# - **5 bits.** A zero improves both. With KIVI's grouping, the loss is a hundredth of a nat, and no fact is gone.
# - **3 bits** break this model. KIVI's grouping saves most of the loss and not one fact. Its authors' models were fifty times as large.
#
# Below 8 bits, tiny-gqa loses far less. The last two rows keep float32, but of 128 tokens only: a quarter of the 512, so as
# many bytes as fp8. With sinks they cost a tenth of a nat, like 4.5 bits per token. Yet one finds 19 facts and the other 8, all in the
# last quarter. Loss is an average, and few tokens need a fact from far back. So run both tests.
#
# ## Windows: forget the middle
#
# Another lossy way is fewer tokens. With a **sliding window** of w, a token looks at the last w tokens, itself included, and the
# cache stops growing at w. Mistral-7B v0.1 was trained with a window of 4,096 in every layer, Gemma-3 with windows in
# five layers of six.

# %%
predict("05.window", value=None)

# %% tags=["claim-window-bytes"]
print("model             tokens   every layer full              with its windows          times smaller")
for name in ("gemma-3-1b", "mistral-7b-v0.1"):
    model_spec = get_model(name)
    for S in (512, 4096, 32_768):
        full = kv_bytes_per_token(model_spec, "bf16") * S
        size = kv_bytes_hybrid(model_spec, model_spec.layer_windows, S)
        words = "   ".join(f"{b:13,} B = {b / 2**20:7.1f} MiB" for b in (full, size))
        print(f"{name:<16} {S:7,} {words} {full / size:8.2f}")

# %% [markdown] lang="en"
# Those models were *trained* with windows. A model that was not breaks, and for an odd reason. Softmax must put its weight
# somewhere. Models learn to park what they do not need on the first tokens, and a window drops those. StreamingLLM (Xiao et
# al. 2024, [arXiv:2309.17453](https://arxiv.org/abs/2309.17453)) keeps the first four tokens as well, as **attention sinks**. Blue is
# what a query sees, grey is what it would have seen:

# %% tags=["claim-window-panel"]
panel(panels.kept, tokens=(64, 1, 96), window=(16, 1, 96), sinks=(4, 0, 16))

# %% tags=["claim-window-tiny"]
from mini_engine.attention import windowed_attention

for size in (8, 16, 32, 128):
    for sinks in (0, 4):
        attention = partial(windowed_attention, window=size - sinks, num_sinks=sinks)
        print(f"{size - sinks:3} newest and {sinks} first tokens {cost(attention)}")

# %% [markdown] lang="en" tags=["claim-manage-s", "self-check"]
# On tiny-gqa, a window of 32 costs almost nothing, and sinks do not matter. SmolLM2's last two rows say otherwise. Without sinks its
# perplexity doubles, as 0.72 nats are a factor of two. Four sinks mend most of that. But what stood outside the window is gone.
# Sinks keep the loss low. They keep nothing that was said.
#
# So tiny-gqa passed because it never learned to look far back. **A test can only show the loss of an ability that the model has**.
# That is the trap of small models, short prompts, and perplexity alone.
#
# A window cuts the number of tokens, s. Before you cut s, manage it, which loses nothing (lessons to come):
#
# - paging gives room block by block, not for the longest answer;
# - requests with the same prompt share its blocks;
# - preemption gives a request's room to another, and computes or copies it back later.
#
# ## Check yourself
#
# Back to the two GPUs. How many requests fit with KIVI's 2-bit codes, once they are all coded?

# %% tags=["self-check"]
predict("05.requests", value=None)

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Read in the 2026 main branch of vLLM, SGLang 0.5.23, llama.cpp and Transformers 5.24.0.
#
# | here | vLLM | SGLang | elsewhere |
# |---|---|---|---|
# | bytes of the cache | `--kv-cache-dtype fp8` | `--kv-cache-dtype fp8_e4m3` | llama.cpp: `--cache-type-k q8_0` |
# | codes per token, int8 | `int8_per_token_head` | - | q8_0: 32 numbers a scale |
# | keys per channel | - | - | Transformers: `QuantizedCache`, for values too |
# | window | `SlidingWindowSpec` | `SWATokenToKVPoolAllocator` | Transformers: `DynamicSlidingWindowLayer` |
#
# **When each loses.** int8 and fp8: contexts so short that weights dominate. Below 8 bits: unpacking costs time, and long
# reasoning adds up small errors. KIVI: short contexts, mostly still in full. Windows: any task that asks for something outside.
#
# > **What this does not show**
# >
# > - Speed. Our caches decode everything for every step; a kernel decodes in registers.
# > - Large models. They have louder channels than ours, and values that lose per channel.
# > - Decoding. The loss reads a whole text in one pass, so groups of keys know the tokens to come.
# > - Rotations, learned codebooks, quantizing before RoPE: all exist, and all need the same two tests.

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Is KIVI an 8-bit or a 4-bit method?</summary>
#
# Neither: it is 2-bit, or 3 bits with scale and zero in groups of 32, a factor of 5.33 from 16. The abstract reports 2.6 times less
# peak memory, weights included, up to 4 times the batch, and 2.35 to 3.47 times the throughput. Those are the authors'
# measurements on their GPUs.
#
# </details>
# <details><summary>Why not one scale for the whole cache, measured beforehand?</summary>
#
# Engines do that for fp8, whose exponent forgives it. A louder text is then clipped. Integers would waste most codes on
# quiet groups.
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - Count scales and zeros: int8 is 8.5 bits in groups of 32, 4-bit with a zero is 5, 2-bit is 3.
# - Keys have loud channels far from 0, so they want a scale per channel, and a zero. Values take a scale per token.
# - Two tests for every compression: half a scale for the code; a loss with an error bar, and retrieval, for the model.
#
# | term | Chinese | what it is |
# |---|---|---|
# | quantization | 量化 | codes, and a scale for them |
# | scale, zero | 缩放因子、零点 | the size of a group's step, and where its steps begin |
# | outlier channel | 离群通道 | a channel that is much louder than the others |
# | attention sink | 注意力汇点 | first tokens that take the weight nobody needs |
# | sliding window | 滑动窗口 | the last w tokens, and nothing else |
#
# **Open exercises.** *Easy:* give `quantize` groups smaller than the head. What does it cost, what does it win? *Medium:* quantize
# keys before RoPE, and rotate after reading. What happens to the stripes?
#
# **Back:** [04 · GQA and MLA](lessons/04_gqa_and_mla.ipynb)
