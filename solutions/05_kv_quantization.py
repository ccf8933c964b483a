# ---
# jupyter:
#   course:
#     translated: false
# ---

# %% [markdown] lang="en" tags=["goals"]
# # 05 · KV quantization, and lossy ways to shrink the cache
#
# **Half the bytes hold twice the requests. The art is in who shares a scale, and the proof is a number you measured.**
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
# The cache is too large, so use fewer bits. The obvious way: find the largest number, cut the range up to it into equal
# steps, and round everything to a step. Here is the engine with that in the place where it reads K and V.


# %% tags=["claim-crude"]
def crudely(x, bits):
    """All of x rounded to steps of one size: the largest number divided by the largest code."""
    step = np.abs(x).max() / (2 ** (bits - 1) - 1)
    return np.rint(x / step) * step


def attention_through(keys, values):
    """Attention that reads K and V the way a cache would give them back."""
    return lambda q, k, v, scale, offset=0: causal_attention(q, keys(k), values(v), scale, offset)


question, greedily = "Emma was", SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
for bits in (16, 8, 4, 2):
    rounded = partial(crudely, bits=bits)
    llm = LLM(tiny, attention=attention_through(rounded, rounded))
    output = llm.generate([question], greedily, progress=False)[0].outputs[0]
    print(f"{bits:2} bits: {' '.join((question + output.text).split())}")

# %% [markdown] lang="en"
# Eight bits: the same words. Four: other words. Two: a broken record. So is half the size the end of it? No. Before this
# lesson is over, two bits a number write good English, on the same model. What changes is who shares a step.
#
# First, what is there to win?
#
# ## What one byte costs
#
# A token of Llama-3-70B leaves 163,840 numbers in the cache: K and V, 80 layers, 8 heads, 128 channels. How many bytes
# each takes is your choice. Say that two GPUs share the model, and that each has 8 GB left for its half of the cache
# ([lesson 02](lessons/02_kv_cache_size.ipynb)). How many requests of 8,192 tokens fit?

# %% tags=["claim-bytes-per-dtype"]
llama = get_model("llama-3-70b")
print("dtype   B per token        MiB   requests of 8,192 tokens in 8 GB, on each of two GPUs")
for dtype in ("fp32", "bf16", "fp8"):
    size = kv_bytes_per_token(llama, dtype)
    print(f"{dtype:<6} {size:12,} {size / 2**20:10g} {8 * 10**9 // (size // 2 * 8192):10}")

# %% [markdown] lang="en"
# From bf16 to fp8, the requests more than double, from 5 to 11. A decode step also reads half the bytes.
#
# But integers need something else: the size of their step, called the **scale**. A code of 93 means nothing without it.
# Small groups of numbers share one, and some formats store where the group starts too, the **zero**. These cost bytes.

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
# - Every `group` numbers share one scale of `scale_bytes` bytes, and a zero of `zero_bytes`. `group` divides `numbers`.
# - Without `zero_bytes` there is no zero. An int, a `Fraction` or an exact float will do.
#
# Small case: 32 numbers of 4 bits in one group, with a scale of 2 bytes: 16 + 2 = 18.
#
# <details><summary>Hint 1: where to look</summary>
#
# Two sums: all codes, and all scales and zeros. How many groups are there?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Codes: `numbers * bits / 8`. Groups: `numbers / group`. Each group adds `scale_bytes + zero_bytes`.
#
# </details>


# %% exercise="quantized_bytes"
def quantized_bytes(numbers, bits, group, scale_bytes, zero_bytes=0):
    """Bytes of codes, scales and zeros."""
    ### BEGIN SOLUTION
    return numbers * bits / 8 + numbers / group * (scale_bytes + zero_bytes)
    ### END SOLUTION


# %% test="quantized_bytes" points=1
quantized_bytes = check("05.quantized_bytes", quantized_bytes)

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
# "4-bit" is 4.5 or 5 bits, "2-bit" is 3. Whoever compares formats by the number in their name compares the wrong thing.
#
# ## A scale and whole numbers
#
# A **symmetric** quantizer with codes from -127 to 127 works like this, for one group of numbers x:
#
# $$\text{scale} = \frac{\max |x|}{127} \qquad \text{code} = \mathrm{round}\Big(\frac{x}{\text{scale}}\Big) \qquad x \approx \text{code} \cdot \text{scale}$$
#
# Rounding is off by half a step at most, and a step is the scale. So no number is off by more than half its group's scale.
# That is a promise, and you can test it. Keep it in mind: it finds most mistakes in this lesson.
#
# Our arrays are x[T, K, D]: tokens, heads, channels. The **axis** says which numbers share a scale.
#
# - `axis=-1`: the channels of one token and head. One scale **per token**, shape [T, K, 1].
# - `axis=0`: all tokens of one channel. One scale **per channel**, shape [1, K, D].
#
# ## Exercise 5.2 - a quantizer
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 6 lines
#
# Write `quantize(x, axis, bits=8)`. Return `(codes, scale)`.
#
# - Codes are `int8`, in the shape of x. They run from -largest to largest, with `largest = 2 ** (bits - 1) - 1`.
# - The scale is `float16`, in the shape of x with 1 in the place of `axis`. It is stored, so it is rounded too.
# - A number comes back within half a scale: the scale that is stored, not the one before rounding.
# - A group of zeros comes back as zeros, not as NaN.
#
# Small case: x = [1, 2, 4] has a scale of 4 / 127 = 0.0315 and the codes 32, 64 and 127.
#
# <details><summary>Hint 1: where to look</summary>
#
# `np.abs(x).max(axis=axis, keepdims=True)` has the shape that the scale needs.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. The largest code is 127 for 8 bits, 7 for 4.
# 2. Magnitude divided by that, as float16: the scale.
# 3. Divide x by *this* scale, in float64. Where it is 0, divide by 1.
# 4. Round with `np.rint`, then turn into `int8`. `astype` alone cuts toward 0.
#
# </details>
# <details><summary>Hint 3: "codes fit the scale that is stored" fails</summary>
#
# You divide by the exact scale and store a rounded one. 127 times a small difference is not small.
#
# </details>


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


# %% test="quantize" points=2
quantize = check("05.quantize", quantize)

# %% [markdown] lang="en"
# ## Exercise 5.3 - and the way back
#
# Difficulty 1/5 · importance 4/5 · 5 minutes · about 1 line
#
# Write `dequantize(codes, scale)`: codes times scale, in float32. It has one trap. NumPy multiplies int8 by float16 in float16,
# which ends at 65,504 and keeps 11 bits. A product that was rounded there stays rounded.
#
# <details><summary>Hint: where to look</summary>
#
# Widen both with `.astype(np.float32)` before you multiply.
#
# </details>


# %% exercise="dequantize"
def dequantize(codes, scale):
    """codes (int8) and scale (float16) -> the numbers, in float32."""
    ### BEGIN SOLUTION
    return codes.astype(np.float32) * scale.astype(np.float32)
    ### END SOLUTION


# %% test="dequantize" points=1
dequantize = check("05.dequantize", dequantize)

# %% [markdown] lang="en"
# ## What the model loses
#
# A held-out chapter of Moby-Dick is the judge: the model never trained on it. The **loss** is how badly the model guesses
# each next token, in nats. Its mean over 255 tokens says how good the model is with this cache. Both runs read the same
# tokens, so compare them token by token. Then the difference has a standard error, and you can tell a cost from noise.
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


def report(name, attention):
    """Print what this attention costs against the exact one, with the standard error of the difference."""
    worse = losses(attention) - exact
    print(f"{name:<34} {worse.mean():+7.3f} ± {worse.std() / len(worse) ** 0.5:.3f} nats a token")


exact = losses(causal_attention)
print(f"exact                              {exact.mean():7.3f}")
for bits in (8, 4, 3, 2):
    mine = partial(there_and_back, bits=bits)
    report(f"your quantizer, {bits} bits per token", attention_through(mine, mine))
report("one step for everything, 2 bits", attention_through(*[partial(crudely, bits=2)] * 2))

# %% [markdown] lang="en"
# Eight bits cost nothing that can be measured here. Two bits cost half a nat: the perplexity, which is e to the loss, grows by
# more than half. A scale per token is better than one for everything, but it is not enough. Why not? Look at the numbers
# themselves.
#
# ## Keys have loud channels
#
# These are the keys and values of layer 1, real ones, from the chapter. Every row is a token, every column a channel. First
# comes a list of the loud channels of each layer: those whose largest magnitude is over 2.4 times the median channel's.


# %% tags=["claim-loud-channels"]
kept = {}


def keep_all(layer, q, k, v):
    """Exact attention that also keeps what it was given."""
    kept[layer] = (q, k, v)
    return causal_attention(q, k, v, spec.head_dim**-0.5)


def loud_channels(x, factor=2.4):
    """(head, channel) of every channel whose largest magnitude is above `factor` times the median channel's."""
    largest = np.abs(x).max(axis=0)
    return [(int(head), int(channel)) for head, channel in np.argwhere(largest > factor * np.median(largest))]


model.forward(text, range(len(text)), keep_all, [0])
for layer, (_, keys, values) in kept.items():
    print(f"layer {layer}, loud (head, channel): keys {loud_channels(keys)}, values {loud_channels(values)}")
q, k, v = kept[1]
picture(pictures.loudness, keys=k, values=v)

# %% [markdown] lang="en"
# Keys have stripes, values have none. A few channels are loud in every token. Two of them even hand over to each other:
# channel 9 of head 1 (column 41) fades as channel 25 (column 57) grows. That is RoPE. It turns channels 9 and 25 together,
# slowly, as the position grows. One long vector turns through both.
#
# What does a loud channel do to its neighbours? With one scale per token, they share. A guess, with numbers like those in
# the picture:

# %%
predict("05.neighbours", value=None)

# %% [markdown] lang="en"
# With 8 bits, a loud channel takes resolution from the others. With 4 bits it takes everything, as the next cell shows.
#
# ## Who shares a scale
#
# So cut the table the other way. Give each channel of the keys a scale of its own.

# %% tags=["diagram", "claim-neighbours"]
token = np.concatenate([[14.0], np.linspace(-0.9, 0.9, 31)]).reshape(1, 1, 32)
for bits in (4, 8):
    codes, scale = quantize(token, -1, bits)
    quiet = np.unique(codes[0, 0, 1:])
    print(f"{bits} bits: scale {float(scale[0, 0, 0]):.3f}, codes of the 31 quiet channels: {quiet.tolist()}")
svg(*pictures.who_shares_a_scale())

# %% [markdown] lang="en"
# From here on we use the engine's codecs, `IntCodec`, which do what you wrote and two things more. They pack codes of 4 and
# 2 bits. And they can be **asymmetric**: codes start at the group's least value, its zero. At 2 bits, symmetric codes are
# -1, 0 and 1, three of the four that two bits hold. The error of every channel and token:

# %% tags=["claim-error-by-channel"]
picture(pictures.errors, keys=k, values=v, height=3.6)

# %% [markdown] lang="en"
# Top left: with one scale per token, a quiet channel is off by up to a third of its own size. The loud channels hardly
# notice. With a scale per channel, every channel is treated alike, and the keys' error halves. Bottom: values have no loud
# channels, so the two ways come out even.
#
# Does the loss agree?

# %% tags=["claim-keys-per-channel"]


def through(codec):
    """x there and back through one of the engine's codecs."""
    return lambda x: codec.decode(codec.encode(x)).astype(np.float64)


def untouched(x):
    return x


for bits in (4, 2):
    per = {by: through(IntCodec(bits, by, group=32, symmetric=False)) for by in ("token", "channel")}
    for by in per:
        report(f"{bits} bits, keys per {by} only", attention_through(per[by], untouched))
    for by in per:
        report(f"{bits} bits, values per {by} only", attention_through(untouched, per[by]))
    report(f"{bits} bits, KIVI: K channel, V token", attention_through(per["channel"], per["token"]))

# %% [markdown] lang="en"
# At 2 bits, keys per token cost three times their error bar. Keys per channel cost nothing that you can tell from noise. For
# values, the error bars overlap. So why per token for values? For a reason of order, not of size. A token's scale is known
# as soon as the token is there. A channel's group must wait for its last token.
#
# That is **KIVI** (Liu et al. 2024, [arXiv:2402.02750](https://arxiv.org/abs/2402.02750)): keys per channel, values per token, and two
# bits. On larger models its authors find that values per channel lose clearly. Our tiny model does not show that.
#
# Try it. The left bar is what a number takes. Every dot is one setting, the ring is yours.

# %% tags=["claim-trade-off"]
trade_off = panels.TradeOff(q, k, v)
panel(trade_off.draw, bits={4: [2, 4, 8]}, group={32: [8, 16, 32]}, layout=list(panels.LAYOUTS))

# %%
picture(trade_off.draw, bits=4, group=32, layout="K per channel, V per token")

# %% [markdown] lang="en"
# Smaller groups help, and they are paid for in scales. Compare two settings of 6 bits: 4-bit codes in groups of 16, and 2-bit
# codes in groups of 8. Where would you rather spend a bit, in the code or in the scale?
#
# ## Exercise 5.4 - a cache that keeps int8
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 15 lines
#
# Rounding on the way to attention saves nothing. Write the cache that keeps the codes. It has the face of lesson 01's cache,
# so it runs in the engine: `Int8KVCache(num_layers, capacity, num_kv_heads, head_dim)`.
#
# - `append(layer, k, v)` takes T new tokens of one layer, k[T, K, D] and v[T, K, D]. It quantizes them with one scale per token
#   and head, and keeps codes and scales.
# - It returns all that the layer holds so far, the new tokens included, dequantized: (k_all[S, K, D], v_all[S, K, D]).
# - A token is quantized once. What comes back for it never changes again.
# - `nbytes` is what `capacity` tokens take: 1 byte a number and 2 a scale. Keep no floats beside them.
# - `num_tokens` counts the tokens that every layer holds. One token too many raises `MemoryError`, names the capacity and
#   changes nothing.
#
# <details><summary>Hint 1: where to look</summary>
#
# Start from the cache of lesson 01. In place of two float arrays you need four: codes and scales, for K and for V. `quantize`
# gives both.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. Codes: int8 `[L, capacity, K, D]`. Scales: float16 `[L, capacity, K, 1]`. Once for K, once for V.
# 2. `append`: check the room, quantize with `axis=-1`, write codes and scales at the layer's length, move the length on.
# 3. Return `dequantize` of the first `end` rows, for K and for V.
#
# </details>
# <details><summary>Hint 3: "a token is quantized once" fails</summary>
#
# You quantize what was dequantized before, or you return the new tokens as they came.
#
# </details>


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

# %% tags=["claim-engine-runs-int8", "claim-bytes-checked"]
from mini_engine.attention import QuantizedKVCache, kivi_cache

longer = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
caches = {
    "float64, exact": "contiguous",
    "int8, yours": Int8KVCache,
    "int4 per token": partial(QuantizedKVCache, keys=IntCodec(4), values=IntCodec(4)),
    "int2, KIVI, groups of 16": kivi_cache(bits=2, group=16),
}
outputs = [LLM(tiny, cache=c).generate([question], longer, progress=False)[0].outputs[0] for c in caches.values()]
for name, output in zip(caches, outputs):
    same = next((i for i, (a, b) in enumerate(zip(output.token_ids, outputs[0].token_ids)) if a != b), 40)
    print(f"{name}: the first {same} of 40 tokens are the exact ones")
    print(f"    {' '.join((question + output.text).split()):.105}")

shape = (spec.num_hidden_layers, 992, spec.num_key_value_heads, spec.head_dim)
reserved, engines = Int8KVCache(*shape), kivi_cache(bits=2, group=32)(*shape)
for layer in range(spec.num_hidden_layers):
    engines.append(layer, *np.zeros((2, *shape[1:])))
print("\n992 tokens            reported by the cache    by the formula")
for name, cache, layout in (("int8, yours", reserved, (8, 32, 2)), ("int2, KIVI", engines, (2, 32, 2, 2))):
    print(f"{name:<20} {cache.nbytes:20,} B {float(992 * kv_bytes_quant(spec, *layout)):15,.0f} B")
print(f"{'bf16':<20} {'':>22} {992 * kv_bytes_per_token(spec, 'bf16'):15,} B")

# %% [markdown] lang="en"
# Your int8 cache writes the exact words. The other two change the text, at some token where two words were close. Is changed
# text worse text? One sample cannot say. And note what came true: two bits, good English.
# (The newest keys, 15 at most, were still waiting in full.)
#
# The bytes agree with the formula. Why 992 tokens? That is 31 full groups of 32. What is left over waits in float32 until its
# group is full. KIVI keeps up to 128 newest tokens that way, so a short context saves little.
# ## fp8: a byte with a point in it
#
# GPUs also compute with **fp8**. The kind used for caches, e4m3, has a sign, 4 bits of exponent and 3 bits after the leading one.
# It needs no scale: the exponent is one, for each number.

# %%
predict("05.fp8", value=None)

# %% tags=["claim-fp8"]
print("x:        ", *(f"{x:8g}" for x in (0.75, 0.78, 17, 75, 1000)))
print("becomes:  ", *(f"{float(fp8_e4m3(x)):8g}" for x in (0.75, 0.78, 17, 75, 1000)))
x = np.linspace(1, 448, 100_000)
print(f"largest error over size, from 1 to 448: {np.max(np.abs(fp8_e4m3(x) - x) / x):.4f}; 1/17 is {1 / 17:.4f}")
print("error over size        keys   values   worse by")
for name, f in {"fp8 e4m3": fp8_e4m3, "int8 per token": there_and_back}.items():
    off = [np.linalg.norm(f(x) - x) / np.linalg.norm(x) for x in (k, v)]
    report(f"{name:<18}{off[0]:9.4f}{off[1]:9.4f}", attention_through(f, f))
for kind in ("auto", "fp8", "int8"):
    llm = LLM("tiny-gqa", backend="torch", kv_cache_dtype=kind, kv_cache_bytes=2**20)
    output = llm.generate([question], greedily, progress=False)[0].outputs[0]
    room, same = llm.engine.stats().num_free_blocks * 16, output.token_ids == outputs[0].token_ids[:24]
    print(f"paged engine, {kind!r}: room for {room:,} tokens in 1 MiB, the exact words: {same}")
picture(pictures.number_lines, height=2.4)

# %% [markdown] lang="en"
# Int8 spends its 256 codes evenly. fp8 spends them near 0, and large numbers get wide gaps. So fp8 does not mind a loud
# channel: each number is off by a seventeenth at most, loud or quiet. Int8 with a good scale is finer where it counts.
# The paged engine takes either with one option, `kv_cache_dtype`.
#
# On these keys and values, int8 is four times as exact as fp8, for a sixteenth more bytes. Neither costs this model anything
# that can be told from noise. fp8 has other merits: no scales to store, and hardware that multiplies it as it is. Does fp8
# halve the cache? Yes, from bf16. From what was fp8 before, nothing.
#
# ## Every compression needs a regression test
#
# Somebody rewrites the quantizer to make it faster. How would you know that it still works? Two questions, two tests.
#
# 1. *Does the code do what it promises?* Test the promise: half a scale.
# 2. *Is the promise good enough for the model?* Measure the model.
#
# Here are wrong quantizers, each a mistake that people make, on keys and values per token. What does the loss say about them?
# And what does a test say that is used in production? For its int8 cache kernel, vLLM compares random normal keys before and after.
# It allows an error of 0.1 plus a tenth of the number, a bound that it shares with fp8
# ([test_per_token_kv_cache.py](https://github.com/vllm-project/vllm/blob/main/tests/quantization/test_per_token_kv_cache.py), read in 2026).

# %% tags=["claim-loss-misses-bugs"]
from mini_engine.course.exercises.e05_check_quantizer import WRONG

normal, caught = np.random.default_rng(0).normal(size=(42, 8, 128)), 0
with np.errstate(invalid="ignore"):
    for name, roundtrip in WRONG.items():
        passes = np.allclose(roundtrip(normal, -1), normal, rtol=0.1, atol=0.1)
        caught += not passes
        report(
            f"{name:<31}{'within 0.1' if passes else 'caught':<12}",
            attention_through(*[partial(roundtrip, axis=-1)] * 2),
        )
print(f"the loose bound catches {caught} of {len(WRONG)}")

# %% [markdown] lang="en"
# Only two of them stand out in the loss. Cutting in place of rounding costs next to nothing. Seven bits in place of eight look like a
# gain. NaN for zeros shows nothing, as this text has no group of zeros. Yours will, some day. A loose bound does not do it either:
# half a scale is about 0.01 for such keys, so 0.1 lets ten times the promise pass. So neither finds bugs. A loss answers the
# second question, not the first.
#
# ## Exercise 5.5 - a test that bad quantizers cannot pass
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 8 lines
#
# Write `check_quantizer(roundtrip)`. `roundtrip(x, axis)` takes x[T, K, D] to 8 bits and back. Raise `AssertionError` if it breaks
# the promise, and return quietly if it keeps it. We try it on right ones and on those in the table.
#
# - The promise: each number is off by at most half a scale. The scale is the largest magnitude of its group, divided by 127.
# - Allow 2 % more than half. A stored scale is rounded, and right ones round it in different ways.
# - Think about the numbers you draw. Each mistake needs a place to show: a loud channel, a quiet token, a negative peak, a
#   group of zeros, both axes.
#
# <details><summary>Hint 1: where to look</summary>
#
# The check asks for one first: the quantizer that cuts. It is off by up to a whole scale, so the bound of half a scale finds it.
# After that the check lists all that slipped through.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Draw x with very different sizes. Set one token to 0. Make one channel loud and negative. For axis -1 and 0: compute
# `np.abs(x).max(axis=axis, keepdims=True) / 127 / 2`, and assert that all errors are at most 1.02 times that.
#
# </details>
# <details><summary>Hint 3: "zeros become NaN" slips through</summary>
#
# Every comparison with NaN is false. Assert that all errors are small, not that none is large.
#
# </details>


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
# ### The second question, on a real model
#
# Our model has 3 million parameters and reads novels. For the second question you need the model that you will serve, and tasks
# like those of your users. So the project measured SmolLM2-135M: the loss on a held-out chapter, and **retrieval**. Each of ten texts
# of 512 tokens hides four facts, one in each quarter, and asks for them at the end. A fact reads "The number of Clara is 48213".

# %% tags=["nbval-ignore-output", "claim-real-model", "claim-window-real"]
import json

stored = json.loads((data_dir().parent / "benchmarks/results/kv_quant.json").read_text(encoding="utf-8"))
smol, small = (stored["models"][name] for name in ("smollm2-135m", "tiny-gqa"))
print(f"{stored['command']}, {stored['date']}: {smol['predicted_tokens']:,} tokens, {smol['facts']} facts")
print(
    f"{'SmolLM2-135M':<21}{'B a token':>10}{'worse by, nats':>19}{'facts found':>13}  by quarter        tiny-gqa worse by"
)
for name, row in smol["schemes"].items():
    print(f"{name:<21}{row['bytes_per_token']:>10,.0f}{row['worse_by']:>+11.3f} ± {row['standard_error']:.3f}", end="")
    print(f"{row['found']:>13}  {row['found_by_quarter']!s:<15}{small['schemes'][name]['worse_by']:>+12.3f}")

# %% [markdown] lang="en"
# Read it row by row.
#
# - **8 bits** cost nothing: not in loss, not in facts. Fp8 and int8 are equal here, and fp8 is a few bytes smaller.
# - **4 bits** depend on who shares a scale. Per token, the loss is a tenth of a nat, and nearly half of the facts are gone. In KIVI's
#   grouping, for half a bit more, it is a hundredth, and no fact is gone.
# - **2 bits** break this model. KIVI's grouping saves most of the loss and not one fact. Its authors worked with models fifty times as
#   large, and kept the newest tokens whole.
#
# And look at the right: tiny-gqa loses far less in every row. It reads novels by the last few words, and small errors drown in what it
# does not know.
#
# Now compare 4 bits per token with the last row. The same loss, a tenth of a nat. Yet one finds 19 facts and the other 8, all in the
# last quarter. Loss is an average over tokens, and few tokens need a fact from far back. So run both, and take your users' tasks if
# you have them.
#
# What is that last row?
#
# ## Windows: forget the middle
#
# Fewer bits is one lossy way. Another is fewer tokens. With a **sliding window** of w, a token looks at the last w tokens, itself
# included. Then the cache stops growing at w. Mistral-7B v0.1 was trained with a window of 4,096 in every layer, Gemma-3 with
# windows in five layers of six.

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
# Those models were *trained* with windows. What if you put a window on a model that was not? It breaks, and for an odd reason.
# Softmax must put its weight somewhere. Models learn to park what they do not need on the first tokens, and a window drops
# those. StreamingLLM (Xiao et al. 2024, [arXiv:2309.17453](https://arxiv.org/abs/2309.17453)) keeps the first four tokens as well, and calls
# them **attention sinks**. Below, blue is what a query sees, grey is what it would have seen.
#
# After the picture, windows on tiny-gqa, with equal numbers of tokens kept. Before you read on, find the two window rows in the table
# of SmolLM2 above.

# %% tags=["claim-window-panel"]
panel(panels.kept, tokens=(64, 1, 96), window=(16, 1, 96), sinks=(4, 0, 16))

# %% tags=["claim-window-tiny"]
from mini_engine.attention import WindowedKVCache, windowed_attention

for size in (8, 16, 32, 128):
    for sinks in (0, 4):
        attention = partial(windowed_attention, window=size - sinks, num_sinks=sinks)
        report(f"{size - sinks} newest and {sinks} first tokens", attention)
cache = WindowedKVCache(spec.num_hidden_layers, 0, spec.num_key_value_heads, spec.head_dim, window=28, num_sinks=4)
for token in range(256):
    for layer in kept:
        cache.append(layer, *(x[token : token + 1] for x in kept[layer][1:]))
full = sum(x.nbytes for layer in kept.values() for x in layer[1:])
print(f"after {cache.num_tokens} tokens, 28 newest and 4 first ones take {cache.nbytes:,} B, all of them {full:,} B")

# %% [markdown] lang="en" tags=["claim-manage-s"]
# On tiny-gqa, a window of 32 costs almost nothing, and sinks do not matter. Are windows harmless? SmolLM2 says no. Without sinks
# its perplexity doubles, as 0.72 nats are a factor of two. Four sinks mend most of that. But look at the facts: what stood outside the
# window is gone, sinks or not. Sinks keep the loss low. They keep nothing that was said.
#
# So tiny-gqa passed because it never learned to look far back. **A test sees only losses of what the model can do**. That is the trap
# of testing compression on small models, on short prompts, or by perplexity alone.
#
# ## Manage s instead of cutting it
#
# The size of a cache is a product: 2 · layers · heads · channels · **s** tokens · batch · bytes. Quantization lowers the bytes, GQA and MLA
# ([lesson 04](lessons/04_gqa_and_mla.ipynb)) the heads. Windows and eviction cut s, and what they cut is gone. But s can also be *managed*, without any
# loss:
#
# | instead of | do | loses |
# |---|---|---|
# | reserving for the longest answer | give room block by block (lessons 06 and 07) | nothing |
# | one copy of a shared prompt a request | share its blocks (lessons 08 and 09) | nothing |
# | dropping a request's cache | preempt it: compute again, or swap to the host (lesson 14) | time |
# | 16 bits | 8 bits, then 4 | measure it |
# | all tokens | a window, or an eviction by score | the tokens that are gone |
#
# Start at the top. The order is by what you can lose, not by what you can win.

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# Back to the two GPUs. One number: how many requests fit with 4-bit codes?

# %% tags=["self-check"]
predict("05.requests", value=None)

# %% [markdown] lang="en" tags=["in-production"]
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
# **When each loses.** int8 and fp8: contexts so short that weights dominate both bytes and time. Below 8 bits: code that must
# unpack costs time, and long reasoning adds up small errors. KIVI: short contexts, as the newest tokens stay in full. Windows: any task
# that asks for something outside. Sinks keep text fluent, which makes the loss harder to notice.

# %% [markdown] lang="en" tags=["limits"]
# > **What this does not show**
# >
# > - Speed. Our caches decode everything for every step. A kernel decodes in registers, and what it gains depends on it.
# > - Large models. They have louder channels than ours, and values that lose per channel.
# > - The loss here reads a whole text in one pass. Groups of keys then know the tokens to come, which a decoding cache does not.
# > - 255 tokens of one book. An error bar of 0.01 hides what a long benchmark would find.
# > - Rotations, learned codebooks, quantizing before RoPE: all exist, and all need the same two tests.

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Does fp8 halve the KV cache?</summary>
#
# From bf16, exactly: 1 byte a number for 2. With a scale per tensor the rest is too small to matter. Int8 with a scale for every
# 128 numbers takes 0.5078 of bf16.
#
# </details>
# <details><summary>Does KV quantization lose accuracy?</summary>
#
# Always some. At 8 bits it is below what a loss can show. At 4 bits and less it depends on who shares a scale, and on the task.
# Long-range retrieval breaks before perplexity does.
#
# </details>
# <details><summary>Is KIVI an 8-bit or a 4-bit method?</summary>
#
# Neither: it is 2-bit, which is where grouping decides. The abstract reports 2.6 times less peak memory, model weights included, up
# to 4 times the batch, and 2.35 to 3.47 times the throughput. Those are the authors' measurements on their GPUs. In groups of 32,
# a number takes 3 bits, a factor of 5.33 from 16. Weights and activations do not shrink with it, and neither do the newest tokens.
#
# </details>
# <details><summary>Why not one scale for the whole cache, measured beforehand?</summary>
#
# Engines do that for fp8, whose exponent forgives it. A text that is louder than the calibration text is then clipped. For integers it
# wastes most codes on quiet groups.
#
# </details>
# <details><summary>Do attention sinks give a model infinite memory?</summary>
#
# No. They keep it fluent past its window. What left the window is gone, and with the positions kept here the model's context stays the
# limit as well.
#
# </details>
# <details><summary>Are weights quantized the same way?</summary>
#
# Similar codes, other conditions. Weights are known beforehand, so one can search for good scales for hours. K and V arrive one token at
# a time, and must be coded at once.
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - Count scales and zeros: int8 is 8.5 bits in groups of 32, 4-bit with a zero is 5, 2-bit is 3.
# - Keys have loud channels, so a scale per channel halves their error. Values do not mind, so they take a scale per token.
# - Two tests for every compression: the promise of half a scale for the code, a loss with an error bar and a retrieval for the model.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | quantization | 量化 | "fewer bits" | codes, and a scale that makes sense of them |
# | scale, zero | 缩放因子、零点 | "overhead" | what a group shares; it counts |
# | outlier channel | 离群通道 | "noise" | a channel that is loud in every token |
# | attention sink | 注意力汇点 | "the BOS trick" | first tokens that take the weight nobody needs |
# | sliding window | 滑动窗口 | "infinite context" | the last w tokens, and nothing else |
#
# **Open exercises.** *Easy:* give `quantize` a group size smaller than the head. What does it cost, what does it win? *Medium:* quantize
# keys before RoPE, and rotate after reading. What happens to the stripes? *Research:* choose bits layer by layer, with the loss
# as the judge. How many bits do you need on average?
#
# **Back:** [04 · GQA and MLA](lessons/04_gqa_and_mla.ipynb)
