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

# %% [markdown] lang="zh" en="e508c6ed"
# # 05 · KV 量化与缓存的有损压缩
#
# **字节减半，请求数翻倍。关键在于哪些数共用一个缩放因子，刻度又从哪里开始；效果如何，要靠你亲手测出的数说话。**
#
# 60 到 90 分钟 · 只用 NumPy，不需要 GPU · 先学第 01 课
#
# 学完这一课，你能够：
#
# - 算清楚量化后的缓存到底占多少字节，缩放因子和零点都算在内；
# - 写出 int8 量化器和一个能在引擎里运行的缓存，并说清为什么键和值要用不同的分组方式；
# - 测出一种压缩的代价，写一个能拦住错误量化器的测试，并说清窗口什么时候会吃亏。

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

# %% [markdown] lang="zh" en="5cdd0df2"
# ## 痛点
#
# 缓存太大，那就少用几位。最直接的做法：以最大的数为界，把整个范围等分成若干级，每个数都舍入到最近的一级。下面的引擎在读取 K 和 V 的地方就是这么做的。


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

# %% [markdown] lang="zh" en="ffd39712"
# 8 位：一字不差。4 位和 3 位：换了词。2 位：像卡住的唱片。不过，模型早已变差，文字看起来可能还是好好的，所以要靠测量。你会发现，同样是 3 位，可以比这里的 3 位好得多。改变结果的有两件事：哪些数共用一个步长，以及刻度从哪里开始。
#
# 先看看能省出什么。
#
# ## 一个字节值多少
#
# Llama-3-70B 的一个 token 会在缓存里留下 163,840 个数。每个数占几个字节，由你来选。假设两块 GPU 分摊这个模型，每块还剩 8 GB 放自己的那一半缓存（[第 02 课](lessons/02_kv_cache_size.ipynb)）。长度为 8,192 个 token 的请求，放得下多少个？

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

# %% [markdown] lang="zh" en="b5650280"
# 从 bf16 换成 fp8，请求数不止翻倍，因为 5 是向下取整得来的。每个解码步要从缓存里读的字节数也减半。
#
# 但整数编码还需要知道步长，也就是**缩放因子**（scale）。单看一个编码 93，什么也说明不了。一小组数共用一个缩放因子，有些格式还要存这一组从哪里开始，也就是**零点**（zero point）。这些都要占字节。

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

# %% [markdown] lang="zh" en="d2fa5b0d"
# ## 练习 5.1 - 把缩放因子算进去
#
# 难度 1/5 · 重要性 4/5 · 5 分钟 · 大约 2 行
#
# 写出 `quantized_bytes(numbers, bits, group, scale_bytes, zero_bytes)`：`numbers` 个数一共占多少字节。
#
# - 一个编码占 `bits` 位。编码是紧凑存放的：两个 4 位编码共用一个字节。
# - 每 `group` 个数共用一个 `scale_bytes` 字节的缩放因子；如果有零点，再加 `zero_bytes` 字节。`numbers` 能被 `group` 整除。
# - 返回什么数值类型都行，只要是精确的。
#
# 小例子：32 个 4 位的数为一组，缩放因子占 2 字节：16 + 2 = 18。


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

# %% [markdown] lang="zh" en="e5196d60"
# <details><summary>提示 1：从哪里入手</summary>
#
# 分两部分求和：一部分是所有编码，另一部分是所有缩放因子和零点。一共有几组？
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先把所有编码的位数换算成字节。再看有多少组，每组多占几个字节。
#
# </details>
#
# 下面是实际在用的几种格式，以及名字里没写出来的那部分开销：

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
#   In this exercise it is 0, or from 0.0001 to 60,000: there float16 is precise enough.
# - A number comes back within half a scale, of the scale that is stored.
# - A group of zeros comes back as zeros. Turn no NaN into int8: the result is undefined.
#
# And `dequantize(codes, scale)`: codes times scale, in float32. Widen both first, as NumPy multiplies int8 by float16 in float16.
#
# Small case: x = [1, 2, 4] has a scale of 4 / 127 = 0.0315 and the codes 32, 64 and 127.

# %% [markdown] lang="zh" en="48a25cbc"
# “4 位”其实是 4.5 位或 5 位，“2 位”其实是 3 位。
#
# ## 缩放因子与整数编码
#
# 编码从 -127 到 127 的**对称**量化器，对一组数 x 是这样做的：
#
# $$\text{scale} = \frac{\max |x|}{127} \qquad \text{code} = \mathrm{round}\Big(\frac{x}{\text{scale}}\Big) \qquad x \approx \text{code} \cdot \text{scale}$$
#
# 缩放因子就是步长。所以任何一个数的误差，都不超过本组缩放因子的一半。
#
# 我们的数组是 x[T, K, D]：token、头、通道。**axis** 决定哪些数共用一个缩放因子。
#
# - `axis=-1`：同一个 token、同一个头的各个通道共用。**逐 token** 一个缩放因子，形状为 [T, K, 1]。
# - `axis=0`：同一个通道的所有 token 共用。**逐通道**一个缩放因子，形状为 [1, K, D]。
#
# ## 练习 5.2 - 量化与反量化
#
# 难度 3/5 · 重要性 5/5 · 25 分钟 · 大约 7 行
#
# 写出 `quantize(x, axis, bits=8)`，返回 `(codes, scale)`。
#
# - 编码为 `int8`，形状与 x 相同，取值从 -largest 到 largest，其中 `largest = 2 ** (bits - 1) - 1`。
# - 缩放因子为 `float16`，形状与 x 相同，只是 `axis` 那一维为 1。它本身也要存下来，所以同样经过了舍入。本题里它要么是 0，要么在 0.0001 到 60,000 之间，float16 的精度够用。
# - 每个数还原后的误差不超过缩放因子的一半；这里说的是存下来的那个缩放因子。
# - 全零的组还原后仍是零。不要把 NaN 转成 int8：结果是未定义的。
#
# 还有 `dequantize(codes, scale)`：编码乘以缩放因子，结果为 float32。先把两者都转成更宽的类型，因为 NumPy 计算 int8 乘 float16 时用的是 float16。
#
# 小例子：x = [1, 2, 4]，缩放因子是 4 / 127 = 0.0315，编码是 32、64 和 127。


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

# %% [markdown] lang="zh" en="509b16c1"
# <details><summary>提示 1：从哪里入手</summary>
#
# `np.abs(x).max(axis=axis, keepdims=True)` 的形状正是缩放因子需要的形状。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先算出缩放因子，取存下来的那个值。再在 float64 下用 x 除以它，注意它为 0 的地方。`np.rint` 舍入到最近的整数，`astype` 直接舍去小数部分。
#
# </details>
# <details><summary>提示 3：“codes fit the scale that is stored”这一项不通过</summary>
#
# 要么除的是精确的缩放因子，存的却是舍入过的；要么是用 float16 做的除法。差得再小，乘上 127 就不小了。
#
# </details>
#
# ## 模型损失了什么
#
# 用《白鲸》中的一章来评判，模型训练时没见过它。**损失**（loss）衡量模型预测下一个 token 有多差，单位是 nat。精确版本和有损版本读的是同样的 255 个 token，所以可以逐 token 比较。± 后面的数是平均差值的标准误。不到两个标准误的差别，可能只是噪声。

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

# %% [markdown] lang="zh" en="2a8aceac"
# 8 位的代价小到测不出来，4 位的代价也很小。2 位要付出半个 nat：困惑度是 e 的 loss 次方，会增加一半以上。算上缩放因子，2 位编码实际占 2.5 位；而所有数共用一个步长的 3 位做法，代价还不到它的一半。2 位编码为什么这么差？看看这些数本身。
#
# ## 键有离群通道
#
# 下面是第 1 层真实的键和值，来自那一章文本。一列是一个通道，一行是 8 个 token 的平均。图的上方打印的是每层幅值最大的五个通道，数值为该通道的最大幅值除以各通道最大幅值的中位数。

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

# %% [markdown] lang="zh" en="c2eaf620"
# 第 1 到 3 层里，键有两三个通道达到中位数的三倍。还有一些较淡的条纹，例如第 9 列和第 43 列，达到两倍。值没有条纹；第 0 层的键也和值差不多。第 41 列和第 57 列此消彼长：RoPE 让一个向量缓慢地转过这两个通道。
#
# 如果逐 token 设缩放因子，离群通道和它的邻居就得共用一个。先猜一猜，题里的数和图中的差不多：

# %%
predict("05.neighbours", value=None)

# %% [markdown] lang="en"
# ## Who shares a scale
#
# So cut the table the other way. Give each channel of the keys a scale of its own.

# %% [markdown] lang="zh" en="623f15eb"
# ## 哪些数共用一个缩放因子
#
# 那就换个方向切：让键的每个通道都有自己的缩放因子。

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

# %% [markdown] lang="zh" en="9eba8b95"
# 4 位时，普通通道（quiet）的编码有四分之一是 0，而 loss 几乎没动。2 位时，几乎全是 0。
#
# 从这里起改用引擎自带的编解码器。`IntCodec` 会把 4 位和 2 位编码紧凑存放，并且在更小的分组里共用缩放因子。`group=32` 表示一个 token 的 32 个通道，或者一个通道的 32 个 token。（你的 `axis=0` 是所有 token 共用。）
#
# ## 刻度从哪里开始：零点
#
# 2 位的对称编码只有 -1、0 和 1，四个编码只用了三个。而且离群通道里的数离 0 很远，彼此却很近，所以范围的大部分是空的。**非对称**量化器从这一组的最小值开始，这个最小值就是**零点**，也要存下来：
#
# $$\text{zero} = \min x \qquad \text{scale} = \frac{\max x - \min x}{2^\text{bits} - 1} \qquad \text{code} = \mathrm{round}\Big(\frac{x - \text{zero}}{\text{scale}}\Big) \qquad x \approx \text{zero} + \text{code} \cdot \text{scale}$$
#
# 哪些数共用缩放因子，刻度从哪里开始：两个选择，四种组合。

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

# %% [markdown] lang="zh" en="b474bf11"
# 同一行里位数相等：没有零点时，键逐通道能让代价减半；有零点时，能省掉六分之五。同一列里，零点多占半位，省得更多。两样都需要：合起来，3 位的代价已经和噪声分不开；同样是 3 位，所有数共用一个步长要付出 0.172。
#
# 再看 4 位、有零点时，每个通道和每个 token 的误差：

# %% tags=["claim-error-by-channel"]
picture(pictures.errors, keys=k, values=v, height=3.6)

# %% [markdown] lang="en"
# Top left: with one scale per token, a quiet channel is off by up to a third of its own size. Per channel, the keys' error halves.
# The loud channels then do best, as their numbers lie close together: the zero again. For values, below, the two ways come out even.
#
# Now keys and values apart, the other one exact (the costs need not add up):

# %% [markdown] lang="zh" en="94cf5383"
# 左上：逐 token 共用缩放因子时，普通通道的误差最大能到自身大小的三分之一。改成逐通道，键的误差减半。这时离群通道反而最好，因为它们的数彼此靠得很近：又是零点的功劳。下面一行是值，两种做法不相上下。
#
# 现在把键和值分开看，每次只量化其中一个，另一个保持精确（两份代价不一定能直接相加）：

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

# %% [markdown] lang="zh" en="ff554417"
# 键需要这种分组。对于值，误差范围重叠，逐通道甚至略好一点。那么值为什么要逐 token？原因在于先后顺序：token 一到，它的缩放因子就能确定；而一个通道的分组要等到最后一个 token 才完整。
#
# 这就是 **KIVI**（Liu 等，2024，[arXiv:2402.02750](https://arxiv.org/abs/2402.02750)）：键逐通道，值逐 token，每组一个零点，2 位编码。作者在更大的模型上发现，值逐通道会明显变差。
#
# 自己试试。左边的柱子是一个数实际占的位数；右边每个点是一种设置，圆圈是你选的那个。注意力输出的误差达到十分之一时，loss 可能还看不出来：注意力只是 token 状态里众多项中的一项，而 loss 只问下一个 token 是什么。

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
# - `nbytes` is what `capacity` tokens take: 1 byte for each number and 2 bytes for each scale. Keep no other floats.
# - `num_tokens` counts the tokens that every layer holds. One token too many raises `MemoryError`, names the capacity and
#   changes nothing.

# %% [markdown] lang="zh" en="8b6b255b"
# ## 练习 5.3 - 用 int8 存储的缓存
#
# 难度 3/5 · 重要性 5/5 · 20 分钟 · 大约 15 行
#
# 只在送进注意力之前舍入一下，一个字节也省不下来。现在写一个真正存编码的缓存，接口和第 01 课的一样：`Int8KVCache(num_layers, capacity, num_kv_heads, head_dim)`。
#
# - `append(layer, k, v)` 接收某一层的 T 个新 token，即 k[T, K, D] 和 v[T, K, D]。每个 token 的每个头用一个缩放因子来量化，保存编码和缩放因子。
# - 它返回这一层到目前为止的全部内容，新 token 也在内，而且已经反量化：(k_all[S, K, D], v_all[S, K, D])。
# - 同一个 token，从第一次 `append` 起，每次返回的数值都不再变化。
# - `nbytes` 是 `capacity` 个 token 占的字节数：每个数 1 字节，每个缩放因子再加 2 字节。除此之外不要再留浮点数。
# - `num_tokens` 是每一层都已存下的 token 数。哪怕只超出一个 token，也要抛出 `MemoryError`，在消息里写明容量，并且不改动任何内容。


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
# 3. Return `dequantize` of all rows up to the new length, for K and for V.
#
# </details>
# <details><summary>Hint 3: "what comes back for a token never changes" fails</summary>
#
# You return the new tokens as they came, and rounded the next time. Return what the codes say.
#
# </details>
#
# The engine takes it with one argument:

# %% [markdown] lang="zh" en="e4d4816d"
# <details><summary>提示 1：从哪里入手</summary>
#
# 从第 01 课的缓存改起。原来是两个浮点数组，现在需要四个：K 和 V 各有编码和缩放因子。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 编码：int8 `[L, capacity, K, D]`。缩放因子：float16 `[L, capacity, K, 1]`。K 一份，V 一份。
# 2. `append`：先检查放不放得下，再用 `axis=-1` 量化，从该层当前长度处写入编码和缩放因子，然后更新长度。
# 3. K 和 V 都一样：把该层到新长度为止的所有行用 `dequantize` 还原，再返回。
#
# </details>
# <details><summary>提示 3：“what comes back for a token never changes”这一项不通过</summary>
#
# 你这次把新 token 原样返回，下次返回的却是舍入后的值。应该直接返回由编码还原的结果。
#
# </details>
#
# 引擎只需要一个参数就能用上它：

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

# %% [markdown] lang="zh" en="7636455c"
# 你的 int8 缓存写出的文本一字不差。int4 的那个改了文本，分岔处有两个候选 token 的分数很接近。改了就是变差吗？只看一个样本，说不准。
#
# 字节数与公式一致。992 个 token 正好是 31 个满组，每组 32 个。凑不满一组的零头先以 float32 存着，满一组才编码，所以上下文很短时 KIVI 省不了多少。
#
# ## fp8：一个字节的浮点数
#
# GPU 也能直接用 **fp8** 计算。缓存用的是 e4m3：一位符号、4 位指数，以及首位之后的 3 位尾数。每个数自带指数，所以没有缩放因子也能用。有些引擎会给整个张量加一个，用来平移它的范围。

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

# %% [markdown] lang="zh" en="cd7a58a4"
# int8 的编码均匀分布，fp8 的编码集中在 0 附近。所以 fp8 不怕离群通道。从 2^-6 到 448，每个数的误差最多是自身的十七分之一，与幅值大小无关。比这更小的数，间隔不再缩小；更大的数，会被截断到 448。
#
# 在这些键和值上，int8 的精度是 fp8 的四倍，而两者的代价都和噪声分不开。在分页引擎里，用选项 `kv_cache_dtype` 就能选其中任意一种。这里的 `'auto'` 是 float32，所以 fp8 占的是四分之一，不是一半。int8 比 fp8 多占八分之一，因为这个引擎的缩放因子是 float32；如果是 2 字节的缩放因子，就只多十六分之一。
#
# ## 每种压缩都要有回归测试
#
# 有人为了提速重写了量化器。你怎么知道它还是对的？两个问题，两种测试。
#
# 1. *代码做到它承诺的了吗？* 测这个承诺：半个缩放因子。
# 2. *这个承诺对模型来说够用吗？* 测模型。
#
# 下面是一批写错的量化器，键逐通道，值逐 token。loss 找得出它们吗？宽松的误差界呢？这里借用 vLLM 的 int8 缓存测试里的界：允许误差为 0.1 加上数值的十分之一（[test_per_token_kv_cache.py](https://github.com/vllm-project/vllm/blob/main/tests/quantization/test_per_token_kv_cache.py)，2026 年查阅）。

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

# %% [markdown] lang="zh" en="acb39a2a"
# 在 loss 里显眼的只有三个。用舍去小数代替舍入，几乎没有代价。7 位看起来反而更好。把零变成 NaN 的那个毫无痕迹，因为这段文本里没有全零的组；你的文本迟早会有。宽松的界放过了十倍于承诺的误差，因为这里的半个缩放因子只有 0.01 左右。两种办法都没能把写错的量化器全找出来。loss 回答的是第二个问题，不是第一个。
#
# ## 练习 5.4 - 能拦住错误量化器的测试
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 8 行
#
# 写出 `check_quantizer(roundtrip)`。`roundtrip(x, axis)` 把 x[T, K, D] 量化成 8 位再还原。如果它违背承诺，就抛出 `AssertionError`；如果守住承诺，就什么也不做，直接返回。
#
# - 承诺：每个数的误差最多是半个缩放因子。缩放因子是本组的最大幅值除以 127。
# - 上限要放宽五十分之一：存下来的缩放因子怎样舍入，正确的量化器各有各的做法。
# - 每组的最大幅值要在 0.01 到 1,000,000 之间，或者为 0。在这个范围里，float16 的缩放因子足够精确。
# - 想清楚要生成什么样的数。每种错误都要有机会暴露：一个幅值特别大的通道、一个幅值特别小的 token、一个负的峰值、一组全零，以及两个 axis。


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

# %% [markdown] lang="zh" en="ee8f14cf"
# <details><summary>提示 1：从哪里入手</summary>
#
# 检查首先要求拦下的，是用舍去小数代替舍入的那个量化器。它的误差最大可达一整个缩放因子，所以以半个缩放因子为界就能拦住它。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 生成大小相差悬殊的 x。把一个 token 设为 0，让一个通道幅值很大且为负。对每个 axis，都直接由 x 算出每组缩放因子的一半，再断言误差都不超过它。
#
# </details>
# <details><summary>提示 3：“zeros become NaN”漏网了</summary>
#
# 与 NaN 比大小，结果总是假。要断言“所有误差都小”，而不是“没有一个误差大”。
#
# </details>
#
# ### 第二个问题，用真实模型回答
#
# 要回答第二个问题，需要你真正要部署的模型，以及和用户任务相近的任务。所以本项目测了 SmolLM2-135M：模型在没见过的一章文本上的 loss，还有**检索**。十段 512 个 token 的文本，每段平均分成四部分，各藏一个事实，最后逐一提问。事实的写法是 "The number of Clara is 48213"。
#
# 这里的“精确”指 float32。int8 是每个 token 的每个头用一个缩放因子，int4 和 int2 是每 32 个数用一个。

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

# %% [markdown] lang="zh" en="0ca20b7d"
# 要在位数相同的前提下比较。
#
# - **8 位**没有代价：loss 没有变差，事实也没有丢。fp8 每个 token 占 11,520 B，int8 占 11,880 B，多出来的是缩放因子。
# - **4.5 位**：逐 token 时，loss 增加十分之一个 nat，事实丢了将近一半。换成 KIVI 的分组，代价只有五分之一，能找回 28 个事实。
# - **5 位**：加上零点，两种分组都变好。用 KIVI 的分组，loss 只增加百分之一个 nat，事实一个也没丢。
# - **3 位**会毁掉这个模型。KIVI 的分组把 loss 的增幅压下了大半，事实却一个也没能找回。KIVI 论文用的模型有它的五十倍大。
#
# 低于 8 位时，tiny-gqa 的损失要小得多。最后两行仍用 float32，但只留 128 个 token，是 512 个的四分之一，所以字节数与 fp8 相同。加上 sink，代价是十分之一个 nat，和 4.5 位逐 token 一样。可是后者能找到 19 个事实，加了 sink 的窗口只找到 8 个，而且全在最后那四分之一里。loss 是平均值，而真正要用到前文事实的 token 很少。所以两种测试都要跑。
#
# ## 窗口：忘掉中间
#
# 另一种有损的办法是少留 token。**滑动窗口**大小为 w 时，每个 token 只看最近的 w 个 token，自己也算在内，缓存长到 w 就不再增长。Mistral-7B v0.1 训练时每一层都用 4,096 的窗口，Gemma-3 则是六层中有五层用窗口。

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

# %% [markdown] lang="zh" en="c5f224a3"
# 这些模型是带着窗口*训练*出来的。没有这样训练过的模型，加上窗口就会坏掉，原因有点出人意料。softmax 的权重总要分给某些 token。模型学会了把用不上的权重放在最前面的几个 token 上，而窗口恰好把它们丢了。StreamingLLM（Xiao 等，2024，[arXiv:2309.17453](https://arxiv.org/abs/2309.17453)）把最前面的四个 token 也留下，称为**注意力汇点**（attention sink，下文简称 sink）。蓝色是查询能看到的，灰色是本来能看到的：

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
# A window cuts the number of tokens, s. Before you cut s, manage it, which loses nothing ([lesson 06](lessons/06_fragmentation.ipynb) and after):
#
# - paging gives room block by block, not for the longest answer;
# - requests with the same prompt share its blocks;
# - preemption gives a request's room to another, and computes or copies it back later.
#
# ## Check yourself
#
# Back to the two GPUs. How many requests fit with KIVI's 2-bit codes, once they are all coded?

# %% [markdown] lang="zh" en="17314395"
# 在 tiny-gqa 上，大小为 32 的窗口几乎没有代价，有没有 sink 也无所谓。SmolLM2 的最后两行却不是这样。没有 sink 时，困惑度翻倍，因为 loss 多出 0.72 nat，换算成困惑度就是两倍。四个 sink 能挽回大半。但窗口之外的内容已经没了。sink 能保住 loss，却保不住说过的任何话。
#
# 所以 tiny-gqa 能过关，是因为它从来没学会回看远处的内容。**测试只能测出模型本来就有的能力损失了多少。** 小模型、短提示词、只看困惑度，陷阱都在这里。
#
# 窗口砍的是 token 数 s。在砍 s 之前，先管理好它，这样什么也不丢（从[第 06 课](lessons/06_fragmentation.ipynb)起）：
#
# - 分页：空间一块一块地给，不必按最长的回答预留；
# - 提示词相同的请求，共用这段提示词的块；
# - 抢占：把一个请求的空间让给另一个，之后再重算，或者拷贝回来。
#
# ## 自测
#
# 回到那两块 GPU。用 KIVI 的 2 位编码，假设所有 token 都已编码，放得下多少个请求？

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

# %% [markdown] lang="zh" en="29063671"
# ## 在生产系统中
#
# 以下内容依据 2026 年 vLLM main 分支、SGLang 0.5.23、llama.cpp 和 Transformers 5.24.0 的源码。
#
# | 本课 | vLLM | SGLang | 其他 |
# |---|---|---|---|
# | 缓存的字节数 | `--kv-cache-dtype fp8` | `--kv-cache-dtype fp8_e4m3` | llama.cpp：`--cache-type-k q8_0` |
# | 逐 token 的 int8 编码 | `int8_per_token_head` | - | q8_0：32 个数一个缩放因子 |
# | 键逐通道 | - | - | Transformers：`QuantizedCache`，值也逐通道 |
# | 窗口 | `SlidingWindowSpec` | `SWATokenToKVPoolAllocator` | Transformers：`DynamicSlidingWindowLayer` |
#
# **各自什么时候吃亏。** int8 和 fp8：上下文太短，显存和时间主要花在权重上。低于 8 位：解包要花时间，长推理会把小误差累积起来。KIVI：上下文很短，大部分还没来得及编码。窗口：凡是要用到窗口之外内容的任务。
#
# > **这一课没有说明的事**
# >
# > - 速度。我们的缓存每一步都把全部内容还原一遍；真正的 kernel 在寄存器里还原。
# > - 大模型。它们的离群通道比这里的更突出，值改成逐通道也会变差。
# > - 解码。这里的 loss 一次读完整段文本，所以键在分组时已经看到了后面的 token。
# > - 旋转、学习出来的码本、在 RoPE 之前量化：都有人做，也都需要同样的两种测试。

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

# %% [markdown] lang="zh" en="c6ad872c"
# ## 常见问题
#
# <details><summary>KIVI 是 8 位的方法还是 4 位的方法？</summary>
#
# 都不是：它是 2 位的方法；以 32 个数为一组，算上缩放因子和零点是 3 位，相当于 16 位的 1/5.33。论文摘要报告：包括权重在内的峰值显存降到原来的 1/2.6，批大小最多是原来的 4 倍，吞吐量是原来的 2.35 到 3.47 倍。这些是作者在自己的 GPU 上测得的。
#
# </details>
# <details><summary>为什么不事先测好一个缩放因子，给整个缓存共用？</summary>
#
# 引擎对 fp8 就是这么做的，因为每个数自带的指数能兜底。遇到幅值更大的文本，超出范围的数会被截断。换成整数编码，幅值小的组会浪费掉大部分编码。
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
# **Back:** [04 · GQA and MLA](lessons/04_gqa_and_mla.ipynb) · **Next:** [06 ·
# Fragmentation](lessons/06_fragmentation.ipynb)

# %% [markdown] lang="zh" en="289b7a56"
# ## 三句话总结
#
# - 缩放因子和零点都要算：int8 以 32 个数为一组是 8.5 位，带零点的 4 位是 5 位，2 位是 3 位。
# - 键有离 0 很远的离群通道，所以需要逐通道的缩放因子，还要零点；值用逐 token 的缩放因子。
# - 每种压缩都要两种测试：查代码，看误差是否不超过半个缩放因子；查模型，看带误差范围的 loss，再加检索。
#
# | 术语 | 英文 | 含义 |
# |---|---|---|
# | 量化 | quantization | 把数变成编码，外加还原时要用的缩放因子 |
# | 缩放因子、零点 | scale, zero | 一组数的步长，以及刻度的起点 |
# | 离群通道 | outlier channel | 幅值远大于其他通道的通道 |
# | 注意力汇点 | attention sink | 最前面的几个 token，承接没处放的权重 |
# | 滑动窗口 | sliding window | 只留最近的 w 个 token |
#
# **开放练习。** *简单*：让 `quantize` 支持比一个头更小的分组。代价是什么，收益是什么？*中等*：在 RoPE 之前量化键，读出之后再旋转。那些条纹会怎样？
#
# **上一课：** [04 · GQA 与 MLA](lessons/04_gqa_and_mla.ipynb) · **下一课：** [06 · 内存碎片](lessons/06_fragmentation.ipynb)
