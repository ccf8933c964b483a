# %% [markdown] lang="en" tags=["goals"]
# # 03 · Roofline
#
# **A step waits for memory or for arithmetic. Count both, and you know for which.**
#
# 60 to 90 minutes · NumPy and PyTorch on a CPU, no GPU · after lesson 02
#
# After this lesson you can
#
# - say of any step what bounds it, and how long it takes at least;
# - find out where batching stops being free, with the K/V counted in;
# - measure the roofline of your own machine, and place the engine's steps under it.

# %% [markdown] lang="zh" en="5d23d411"
# # 03 · 屋顶线模型（roofline）
#
# **一步推理，要么在等内存，要么在等计算。把两样各有多少都数清楚，就知道它在等哪一样。**
#
# 60 到 90 分钟 · 在 CPU 上用 NumPy 和 PyTorch，不需要 GPU · 先学第 02 课
#
# 学完这一课，你能够：
#
# - 说出任何一步推理的瓶颈在哪里、最快也要多久；
# - 把 K/V 也算进去，找出批处理从什么时候起不再免费；
# - 测出你自己机器的屋顶线，并把引擎的每一步画到它下面。

# %%
import dataclasses
from fractions import Fraction

from mini_engine import get_gpu, get_model, list_gpus
from mini_engine import roofline as rl
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.gpu_share import half_70b
from mini_engine.course.measured_steps import measure_products, measure_steps
from mini_engine.course.panels import p03_decode, p03_intensity
from mini_engine.course.panels import p03_two_clocks as diagrams
from mini_engine.geometry import params
from mini_engine.models import random_model
from mini_engine.roofline.measure import measure_rates

# %% [markdown] lang="en"
# ## The pain
#
# Here is the engine with one CPU thread on a model of 58 million parameters. Their values are random: the clock does
# not mind. One step runs a prompt of 256 tokens, the other decodes one token. A **FLOP**, a floating-point operation,
# is one addition or multiplication. A GFLOP/s is 1e9 of them in a second.

# %% [markdown] lang="zh" en="1ef274f0"
# ## 痛点
#
# 引擎只用一个 CPU 线程，跑一个 5800 万参数的模型。参数是随机的，反正耗时与数值无关。一步跑一段 256 个 token 的提示词，另一步解码一个 token。**FLOP** 是一次浮点运算，即一次加法或一次乘法；GFLOP/s 是每秒 1e9 次。

# %% tags=["nbval-ignore-output", "claim-two-phases-measured"]
spec = dataclasses.replace(get_model("smollm2-135m"), num_hidden_layers=15, vocab_size=8192)
model = random_model(spec)
for step in measure_steps(model, prefills=[256], batches=[1]):
    tokens = int(step.name.split()[-1])
    print(f"{step.name:<12} {step.seconds * 1e3:7.1f} ms   {tokens / step.seconds:7,.0f} tokens/s", end="")
    print(f"   {step.rate / 1e9:6.1f} GFLOP/s")

# %% [markdown] lang="en"
# The same weights, nearly the same work for each token, and yet decode makes tokens many times more slowly. The
# processor can do what it did in prefill. In decode it does not get to: it waits. For what, and for how long?
#
# ## Two clocks
#
# Every piece of work does some number of FLOPs. And it moves some number of bytes between memory and the arithmetic
# units. A machine has a rate for each: its **peak** in FLOP/s, its **bandwidth** in bytes/s. While one product is
# computed, the next numbers are on their way. So the two clocks run side by side, and the slower one is the time:
#
# $$\text{time} \ge \max\left(\frac{\text{FLOPs}}{\text{peak}}, \frac{\text{bytes}}{\text{bandwidth}}\right)$$
#
# Now a real case. Llama-3-70B has about 70e9 parameters, and in bf16 each takes 2 bytes. Two H100s share them. So each
# GPU holds 35e9 parameters, which are 70e9 bytes. To make one token, a decode step reads all its weights, and an H100
# reads 3.35e12 bytes/s.

# %% [markdown] lang="zh" en="ba65dda1"
# 同样的权重，摊到每个 token 的计算量也差不多，解码产出 token 却慢了许多倍。预填充时能跑到的速度，说明处理器有这个本事；解码时它没机会发挥，因为它在等。等的是什么？要等多久？
#
# ## 两个时钟
#
# 任何一件工作都要做若干 FLOP，也要在内存和计算单元之间搬运若干字节。机器对两者各有一个速率：**峰值算力**，单位是 FLOP/s；**带宽**，单位是字节/s。算这一个乘积的时候，下一批数已经在路上了。所以两个时钟同时在走，总时间由较慢的那个决定：
#
# $$\text{time} \ge \max\left(\frac{\text{FLOPs}}{\text{peak}}, \frac{\text{bytes}}{\text{bandwidth}}\right)$$
#
# 来看一个真实的例子。Llama-3-70B 约有 70e9 个参数，bf16 下每个占 2 字节。两块 H100 平分，每块 GPU 存 35e9 个参数，也就是 70e9 字节。解码一步要把这些权重全部读一遍，才得到一个 token；而 H100 每秒能读 3.35e12 字节。

# %%
predict("03.step_ms", value=None)

# %% [markdown] lang="en"
# ## Exercise 3.1 - two clocks
#
# Difficulty 1/5 · importance 5/5 · 5 minutes · about 3 lines
#
# Write `least_time(flops, bytes_moved, peak, bandwidth)`. It returns two numbers:
#
# - the least seconds that the work takes;
# - the share of them, from 0 to 1, in which the arithmetic units are busy.
#
# Either count may be 0, but not both. Small case: 4 FLOPs, 8 bytes, a peak of 4 FLOP/s, a bandwidth of 1 byte/s.
# Reading takes 8 s, computing 1 s. The answer is 8 and 1/8.

# %% [markdown] lang="zh" en="0a5d4898"
# ## 练习 3.1 - 两个时钟
#
# 难度 1/5 · 重要性 5/5 · 5 分钟 · 大约 3 行
#
# 写出 `least_time(flops, bytes_moved, peak, bandwidth)`，返回两个数：
#
# - 这件工作最少要多少秒；
# - 其中计算单元在忙的时间占多大比例，0 到 1 之间。
#
# 两个计数可以有一个是 0，但不会都是 0。小例子：4 FLOP，8 字节，峰值 4 FLOP/s，带宽 1 字节/s。读要 8 秒，算要 1 秒，答案是 8 和 1/8。


# %% exercise="least_time"
def least_time(flops, bytes_moved, peak, bandwidth):
    """(seconds, busy): the least time of the work, and the share of it that computing takes."""
    ### BEGIN SOLUTION
    computing, reading = flops / peak, bytes_moved / bandwidth
    seconds = max(computing, reading)
    return seconds, computing / seconds
    ### END SOLUTION


# %% test="least_time" points=1
least_time = check("03.least_time", least_time)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Work out both clocks first. The time is one of them, busy a quotient of two.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `computing = flops / peak`, `reading = bytes_moved / bandwidth`. Take the larger one as `seconds`. The units are busy
# while they compute, so divide `computing` by `seconds`.
#
# </details>
# <details><summary>Hint 3: "equal clocks run side by side" fails</summary>
#
# The clocks overlap, so they are not added. Two clocks of 3 seconds are 3 seconds.
#
# </details>

# %% [markdown] lang="zh" en="cb006238"
# <details><summary>提示 1：从哪里入手</summary>
#
# 先把两个时钟都算出来。总时间是其中之一，忙碌比例是两个时间的商。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# `computing = flops / peak`，`reading = bytes_moved / bandwidth`，较大的那个就是 `seconds`。计算单元只在计算时才忙，所以用 `computing` 除以 `seconds`。
#
# </details>
# <details><summary>提示 3：“equal clocks run side by side”这一项不通过</summary>
#
# 两个时钟是重叠的，不能相加。两个都走 3 秒，总共还是 3 秒。
#
# </details>

# %% tags=["claim-step-floor", "claim-idle"]
half = half_70b()  # one of the two H100s
flops = 2 * 35e9  # each of its 35e9 parameters meets the token once: a multiply and an add
seconds, busy = least_time(flops, half.weight_bytes, half.peak, half.bandwidth)
print(f"read {half.weight_bytes:,} B:   {half.weight_bytes / half.bandwidth * 1e3:8.4f} ms")
print(f"do   {flops:,.0f} FLOPs: {flops / half.peak * 1e3:8.4f} ms")
print(f"one step: {seconds * 1e3:.4f} ms, so {1 / seconds:.3f} tokens/s at most; idle {1 - busy:.2%}")
work, moved = 2 * 70 * 10**9, 2 * 70 * 10**9
print(f"both GPUs: {work:,} FLOPs over {moved:,} bytes = {work / moved:.0f} FLOP per byte")

# %% tags=["diagram"]
svg(*diagrams.two_clocks())

# %% [markdown] lang="en"
# 20.9 ms for one token, 47.9 tokens/s, and the arithmetic units idle for 99.66% of it. No software can do better. (One
# user of two GPUs, an empty cache, no time for anything else.)
#
# You may read "two multiply-adds per parameter". A multiply-add is already two FLOPs, so that is twice too many.
#
# ## Intensity and the ridge
#
# Divide the two counts, and you get the work's **intensity**, in FLOP per byte (FLOP/B). Divide the two rates, and you
# get the machine's **ridge point**, in the same unit.
#
# - Intensity below the ridge: **memory bound**. The bytes set the time.
# - Intensity above the ridge: **compute bound**. The FLOPs do.
#
# An H100 computes 989e12 FLOP/s in bf16. Where is its ridge?

# %% [markdown] lang="zh" en="40d69680"
# 一个 token 要 20.9 ms，每秒 47.9 个 token，计算单元有 99.66% 的时间闲着。换什么软件都不会更快。（前提是：两块 GPU 只服务一个用户，缓存是空的，别的开销都不计时间。）
#
# 有的资料写“每个参数两次乘加”。一次乘加本身就是两个 FLOP，这样算就多了一倍。
#
# ## 算术强度与脊点
#
# 两个计数相除，得到这件工作的**算术强度**（intensity），单位是 FLOP 每字节（FLOP/B）。两个速率相除，得到这台机器的**脊点**（ridge point），单位相同。
#
# - 算术强度低于脊点：**访存受限**（memory bound），时间由字节数决定。
# - 算术强度高于脊点：**计算受限**（compute bound），时间由 FLOP 数决定。
#
# H100 的 bf16 峰值算力是 989e12 FLOP/s。它的脊点在哪里？

# %%
predict("03.ridge", value=None)

# %% tags=["claim-ridge", "claim-sparse"]
print(f"{'':16} {'TFLOP/s':>8} {'GB/s':>6}    ridge, FLOP/B")
for name in list_gpus():
    gpu = get_gpu(name)
    if gpu.fp8_flops or name in ("a100-80gb-sxm", "tpu-v5e"):
        ridge = rl.ridge_point(gpu.bf16_flops, gpu.memory_bandwidth)
        print(f"{name:<16} {gpu.bf16_flops / 1e12:8,.1f} {gpu.memory_bandwidth / 1e9:6,.0f} {float(ridge):8.1f}")
print()
h100, h200 = get_gpu("h100-sxm"), get_gpu("h200-sxm")
RIDGE = rl.ridge_point(h100.bf16_flops, h100.memory_bandwidth)
print(f"h100-sxm: {RIDGE} = {float(RIDGE):.4f} FLOP/B. Note: {h100.note}")
print(f"h200-sxm reads {h200.memory_bandwidth / h100.memory_bandwidth - 1:.0%} faster than h100-sxm")

# %% [markdown] lang="en"
# Peaks are dense bf16. An H100's data sheet prints 1,979 TFLOPS, "with sparsity". That rate needs two of every four
# weights to be zero, and ordinary weights are not.
#
# A high ridge is no merit. The H200 computes no faster than the H100. It reads faster, so its ridge is lower, and
# decode gets 43% faster on it: 4.8e12 bytes/s against 3.35e12. Look for `bandwidth` first when you buy for decode.
#
# ## How intense is a matrix product?
#
# A layer multiplies M tokens by a weight of d rows and d columns. M counts the tokens of one step: B sequences times T
# new tokens each. T is 1 in decode, and the prompt's length in prefill. With 2-byte numbers:
#
# | | |
# |---|---|
# | FLOPs | 2 M d² |
# | bytes: rows in, weight, rows out | 2 M d + 2 d² + 2 M d |
# | intensity | M d / (2 M + d) |
#
# For few tokens the weight is nearly all of the bytes, and the intensity is nearly M. Hence a popular rule: "from 295
# tokens on, you are compute bound". Is it so?

# %% [markdown] lang="zh" en="c3af1425"
# 这里的峰值都是稠密 bf16。H100 的规格书上印的是 1,979 TFLOPS，并注明“with sparsity”（稀疏）：要达到这个速率，每四个权重里得有两个是零，而普通的权重并非如此。
#
# 脊点高并不是优点。H200 算得不比 H100 快，但读得更快，所以脊点更低，解码也快了 43%：4.8e12 字节/s 对 3.35e12。为解码选卡，先看 `bandwidth`。
#
# ## 矩阵乘法的算术强度有多高？
#
# 一层要拿 M 个 token 去乘一个 d 行 d 列的权重矩阵。M 是这一步里的 token 总数：B 个序列，每个带来 T 个新 token。解码时 T 是 1，预填充时 T 是提示词的长度。每个数占 2 字节时：
#
# | | |
# |---|---|
# | FLOP 数 | 2 M d² |
# | 字节数：读入的行、权重、写出的行 | 2 M d + 2 d² + 2 M d |
# | 算术强度 | M d / (2 M + d) |
#
# token 少的时候，字节几乎全是权重，算术强度约等于 M。于是有了一条流传很广的经验法则：“从 295 个 token 起就是计算受限。”真是这样吗？

# %%
predict("03.threshold", value=None)

# %% [markdown] lang="en"
# ## Exercise 3.2 - where a product becomes compute bound
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 5 lines
#
# Weights are seldom square. Write `min_tokens(R, C, ridge)` for M tokens times a weight of R rows and C columns. Their
# product has M rows and C columns. Numbers take 2 bytes. Rows and weight are read once, the product is written once.
#
# - Return the smallest M whose intensity is at least `ridge`, as an `int`.
# - Return `None` if no M gets there, however large.
# - `ridge` is a `Fraction`. Stay exact: an int divided by an int is a float, `Fraction(a, b)` is exact.
# - A loop over M will do too, once you know that it ends.
#
# Small case, R = C = 8 and a ridge of 2: M = 4 brings 512 FLOPs over 256 bytes, exactly 2. With a ridge of 4 it is
# `None`.

# %% [markdown] lang="zh" en="0cc40aa3"
# ## 练习 3.2 - 矩阵乘法从哪里起变成计算受限
#
# 难度 3/5 · 重要性 4/5 · 15 分钟 · 大约 5 行
#
# 权重矩阵很少是方阵。写出 `min_tokens(R, C, ridge)`：M 个 token 乘一个 R 行 C 列的权重矩阵，结果是 M 行 C 列。每个数占 2 字节，输入的行和权重各读一次，结果写一次。
#
# - 返回算术强度达到 `ridge` 所需的最小 M，类型是 `int`。
# - 如果 M 再大也达不到，返回 `None`。
# - `ridge` 是一个 `Fraction`。请全程保持精确：int 除以 int 得到的是 float，`Fraction(a, b)` 才是精确的。
# - 让 M 逐个往上试也可以，只要你先确认循环会结束。
#
# 小例子：R = C = 8，ridge 为 2。M = 4 时是 512 FLOP 对 256 字节，正好是 2。ridge 为 4 时答案是 `None`。


# %% exercise="min_tokens"
def min_tokens(R, C, ridge):
    """The smallest M at which [M, R] x [R, C] in 2-byte numbers reaches `ridge` FLOP/B; None when none does."""
    ### BEGIN SOLUTION
    # M R C >= ridge (M R + R C + M C), so M (R C - ridge (R + C)) >= ridge R C
    gain = R * C - ridge * (R + C)
    if gain <= 0:
        return None
    return -(-ridge * R * C // gain)
    ### END SOLUTION


# %% test="min_tokens" points=2
min_tokens = check("03.min_tokens", min_tokens)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Write the intensity as FLOPs over bytes: 2 M R C over 2 (M R + R C + M C). What does it come close to when M is huge?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. For huge M the part R C no longer counts, and the intensity nears R C / (R + C). Not above the ridge? Then `None`.
# 2. Otherwise solve for M: M (R C - ridge (R + C)) is at least ridge R C.
# 3. Divide, and round up. `math.ceil` of a `Fraction` is exact.
#
# </details>
# <details><summary>Hint 3: the last two checks fail</summary>
#
# Where the quotient is a whole number, it is the answer itself. `quotient // 1 + 1` is one too many there, and so is
# `math.ceil` of a float that lies a little above.
#
# </details>

# %% [markdown] lang="zh" en="4a5cdee5"
# <details><summary>提示 1：从哪里入手</summary>
#
# 把算术强度写成 FLOP 数除以字节数：2 M R C 除以 2 (M R + R C + M C)。M 非常大时，它趋近于什么？
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. M 非常大时，R C 那一项可以忽略，算术强度趋近 R C / (R + C)。这个极限不高于 ridge？那就返回 `None`。
# 2. 否则解出 M：M (R C - ridge (R + C)) 不小于 ridge R C。
# 3. 相除，再向上取整。对 `Fraction` 用 `math.ceil` 是精确的。
#
# </details>
# <details><summary>提示 3：最后两项不通过</summary>
#
# 商恰好是整数时，它本身就是答案，`quotient // 1 + 1` 会多出一个。如果用的是 float，而它因为舍入略微偏大，`math.ceil` 同样会多出一个。
#
# </details>

# %% tags=["claim-threshold", "claim-never"]
print("      d   intensity at M = 295   limit d / 2   compute bound from")
for d in (512, 590, 591, 1024, 4096, 8192, 16384):
    at_295, tokens = rl.gemm_intensity(295, d, d), min_tokens(d, d, RIDGE)
    print(f"{d:7,} {float(at_295):20.1f} {d / 2:15,.1f}   {f'{tokens:,} tokens' if tokens else 'never'}")
print()
shapes = {"QKV": (8192, 10240), "O": (8192, 8192), "gate and up": (8192, 57344), "down": (28672, 8192)}
for name, (R, C) in shapes.items():
    # Over 8 GPUs the first product of a pair is split by columns, the second by rows.
    part = (R // 8, C) if name in ("O", "down") else (R, C // 8)
    whole, split = min_tokens(R, C, RIDGE), min_tokens(*part, RIDGE)
    print(f"Llama-3-70B {name:<12} {R:6,} x {C:6,}: {whole} tokens; split over 8 GPUs: {split}")

# %% [markdown] lang="en"
# 319 tokens for d = 8,192, and 345 for d = 4,096. At 295 tokens d = 8,192 brings 275.2, a little below the ridge. For
# small weights the rule is wrong altogether. With d up to 590 no number of tokens is enough: the rows in and out grow
# as fast as the work. Splitting a weight over GPUs narrows it, and moves its threshold out.
#
# Move the sliders. Find a d at which a step of 1,000 tokens stays memory bound. In all pictures both axes are
# logarithmic: each step is a factor of 10.

# %% [markdown] lang="zh" en="8acc484c"
# d = 8,192 时要 319 个 token，d = 4,096 时要 345 个。295 个 token 时，d = 8,192 的算术强度只有 275.2，略低于脊点。而权重矩阵一小，这条经验法则就彻底不成立：d 不超过 590 时，多少个 token 都不够，因为要读写的行和计算量涨得一样快。把一个权重矩阵切到多块 GPU 上，它就变窄，门槛随之升高。
#
# 拖动滑块，找一个 d，让 1,000 个 token 的一步仍然访存受限。本课所有图的两个坐标轴都是对数的，每一格差 10 倍。

# %% tags=["claim-gemm"]
batches, prompts = [1, 8, 32, 128, 512], [1, 10, 100, 1000, 2048]
sizes = [256, 512, 1024, 2048, 4096, 8192, 16384]
panel(p03_intensity.gemm, batch={1: batches}, new_tokens={1000: prompts}, d={8192: sizes})

# %% tags=["claim-gemm", "claim-prefill-intensity"]
print("d = 8,192                          exact    limit   bound by, on an H100")
for name, M in {
    "decode, batch 1": 1,
    "decode, batch 32": 32,
    "prefill, 100 tokens": 100,
    "prefill, 1,000 tokens": 1000,
    "prefill, 2,048 tokens": 2048,
}.items():
    intensity = rl.gemm_intensity(M, 8192, 8192)
    print(f"{name:<28} {float(intensity):11,.1f} {M:8,}   {'compute' if intensity >= RIDGE else 'memory'}")

# %% [markdown] lang="en"
# "Prefill has an intensity of about 1,000, decode of about 1." True for a prompt of 1,000 tokens: 803.8 exactly. A
# prompt of 100 brings 97.6 and is memory bound, like decode. It is the number of tokens in the step that decides, not
# the name of the phase. That is also the cure: put 32 sequences in one decode step, and the weights are read once for
# all of them.
#
# ## Attention does not share
#
# The weights are the same for every sequence. The K/V is not. (The letters are those of lesson 01: H query heads, K K/V
# heads, each of size D, and S tokens in the cache.)

# %% [markdown] lang="zh" en="2665b699"
# “预填充的算术强度大约是 1,000，解码大约是 1。”对 1,000 个 token 的提示词，这话成立，准确值是 803.8。换成 100 个 token 的提示词，只有 97.6，和解码一样是访存受限。起决定作用的是这一步有多少个 token，而不是它叫哪个阶段。解法也就在这里：把 32 个序列放进同一步解码，权重只读一遍，大家共用。
#
# ## 注意力没法共用
#
# 权重对所有序列都是同一份，K/V 却不是。（字母沿用第 01 课：H 个查询头，K 个 K/V 头，每个头的大小是 D，缓存里有 S 个 token。）

# %%
svg(*diagrams.who_reads_what())

# %%
predict("03.batch_attention", value=None)

# %% [markdown] lang="en"
# ## Exercise 3.3 - what attention computes and reads
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 4 lines
#
# Count one layer's attention in one decode step. There are H query heads and K K/V heads of size D, and B sequences
# with S cached tokens each. Write `attention_cost(H, K, D, S, B, shared)`. It returns two ints:
#
# - **FLOPs**: each query head takes, for each cached token, a dot product with its key and adds its value, weighted. A
#   multiply-add is 2 FLOPs. Softmax is left out.
# - **bytes**, at 2 bytes a number: K and V of every cached token, read once. And for each sequence q is read and the
#   output is written, both of shape `[H, D]`.
# - `shared=True`: all B sequences attend to the *same* S tokens, and one reading serves them all.
#
# Small case: one head of each kind, D = 2, S = 3, one sequence. The answer is `(24, 32)`. Of the bytes, 24 are K and V,
# and 8 are q and the output.

# %% [markdown] lang="zh" en="4f4f19e5"
# ## 练习 3.3 - 注意力算多少、读多少
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 4 行
#
# 算一算一步解码里一层注意力的账。有 H 个查询头、K 个 K/V 头，头的大小是 D；有 B 个序列，每个缓存了 S 个 token。写出 `attention_cost(H, K, D, S, B, shared)`，返回两个 int：
#
# - **FLOP 数**：每个查询头对每个缓存的 token，先和它的键做点积，再把它的值加权累加。一次乘加是 2 FLOP，softmax 不计。
# - **字节数**，每个数 2 字节：每个缓存 token 的 K 和 V 读一次；此外，每个序列还要读 q、写输出，两者形状都是 `[H, D]`。
# - `shared=True`：B 个序列看的是*同一份* S 个 token，读一次大家共用。
#
# 小例子：查询头和 K/V 头各一个，D = 2，S = 3，一个序列，答案是 `(24, 32)`。这些字节里，24 是 K 和 V，8 是 q 和输出。


# %% exercise="attention_cost"
def attention_cost(H, K, D, S, B=1, shared=False):
    """(FLOPs, bytes) of one layer's attention in a decode step of B sequences with S cached tokens each."""
    ### BEGIN SOLUTION
    flops = 4 * H * D * S * B
    readings = 1 if shared else B
    cache = 2 * (2 * K * D * S) * readings
    query_and_output = 2 * (2 * H * D) * B
    return flops, cache + query_and_output
    ### END SOLUTION


# %% test="attention_cost" points=2
attention_cost = check("03.attention_cost", attention_cost)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# For each letter ask: does it multiply the work, the bytes, or both? H works, K is read. B is special.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. A score is D multiply-adds, and so is adding a value: 4 D FLOPs for each query head, token and sequence.
# 2. K and V: 2 arrays of `K * D` numbers for each token, 2 bytes each. Once, or once for each sequence.
# 3. q and output: 2 arrays of `H * D` numbers for each sequence.
#
# </details>
# <details><summary>Hint 3: "a shared context is read once" fails</summary>
#
# Only the reading of K and V is shared. Every sequence still computes its own scores, and has its own q and output.
#
# </details>

# %% [markdown] lang="zh" en="fb986da4"
# <details><summary>提示 1：从哪里入手</summary>
#
# 对每个字母都问一句：它放大的是计算量、字节数，还是两者都放大？H 管计算，K 管读取，B 比较特殊。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 一个分数要 D 次乘加，累加一个值也要 D 次：每个查询头、每个 token、每个序列共 4 D 个 FLOP。
# 2. K 和 V：每个 token 有 2 个数组，各 `K * D` 个数，每个数 2 字节。全体只读一次，或者每个序列读一次。
# 3. q 和输出：每个序列有 2 个数组，各 `H * D` 个数。
#
# </details>
# <details><summary>提示 3：“a shared context is read once”这一项不通过</summary>
#
# 共用的只是 K 和 V 的读取。每个序列仍要自己算分数，也有自己的 q 和输出。
#
# </details>


# %% tags=["claim-attention-intensity", "claim-s-cancels"]
def attention_intensity(K, S, B=1, shared=False):
    flops, moved = attention_cost(64, K, 128, S, B, shared)
    return Fraction(flops, moved)


print("64 query heads of 128   " + "".join(f"{f'S = {S:,}':>12}" for S in (1, 16, 100, 1000, 8192)) + "   limit")
for name, K in (("MHA, 64 K/V heads", 64), ("GQA, 8 K/V heads", 8), ("MQA, 1 K/V head", 1)):
    row = "".join(f"{float(attention_intensity(K, S)):12.3f}" for S in (1, 16, 100, 1000, 8192))
    print(f"{name:<24}{row} {64 // K:7}")
print()
print(f"GQA, S = 8,192, exactly: {attention_intensity(8, 8192)}. Batch 1, 8, 32, 256:", end="")
print("".join(f" {float(attention_intensity(8, 8192, B)):.3f}" for B in (1, 8, 32, 256)))
same = attention_intensity(8, 8192, 32, True) == rl.attn_decode_intensity(64, 8, 128, 8192, sharers=32)
print(f"the package's calculator agrees: {same}")

# %% tags=["claim-batch-attention", "claim-shared-prefix"]
picture(p03_intensity.attention, context=8192)

# %% [markdown] lang="en"
# MHA gives each query head a K/V head of its own, GQA one to each group, MQA one to all.
#
# The work grows with S, and so do the bytes: S cancels. What is left is H / K, the number of query heads that share a
# K/V head. For short contexts it is a little less, because q and the output count too. A rule in print says "4 g S D
# FLOPs over 4 S D bytes", with g query heads to a K/V head. It leaves them out: at S = 16 it says 8 where 5.333 is
# right.
#
# The batch cancels too: 32 sequences do 32 times the work on 32 times the bytes. So batching does nothing for
# attention. The one exception is a context that sequences share, such as a long system prompt. Read once for all, these
# 8,192 tokens make attention compute bound from 39 sequences on.
#
# ## The roofline
#
# Draw the rate that a machine can reach against the intensity. Memory delivers so many bytes a second, and each brings
# as many FLOPs as the intensity says. So the rate is intensity times bandwidth: a slope. At the ridge it has come up to
# the peak, and from there on it is flat. That is the **roofline**, min(peak, intensity · bandwidth). Nothing gets above
# it.
#
# MLA, the subject of the next lesson, is in the picture too. Its 128 heads share one row of 576 cached numbers a token.
# The score takes all of them, the value 512.

# %% [markdown] lang="zh" en="4695ebef"
# MHA 给每个查询头配一个 K/V 头，GQA 给每组查询头配一个，MQA 则让所有查询头共用一个。
#
# 计算量随 S 增长，字节数也随 S 增长，S 就约掉了。剩下的是 H / K，即共用一个 K/V 头的查询头数。上下文短的时候会再小一点，因为 q 和输出也要算。有资料写作“4 g S D 个 FLOP 除以 4 S D 字节”（g 是每个 K/V 头对应的查询头数），漏掉了 q 和输出：S = 16 时它给出 8，正确值是 5.333。
#
# 批大小也约掉了：32 个序列就是 32 倍的计算，配 32 倍的字节。所以批处理帮不了注意力。唯一的例外是几个序列共用的上下文，例如一段很长的系统提示词。如果只读一遍、供所有序列使用，这 8,192 个 token 的注意力从 39 个序列起就是计算受限。
#
# ## 屋顶线
#
# 横轴是算术强度，纵轴是机器能达到的速率。内存每秒只能送来这么多字节，每个字节对应多少 FLOP 由算术强度决定，所以速率等于算术强度乘以带宽，画出来是一条斜线。到了脊点，速率升到峰值，此后就是平的。这条折线就是**屋顶线**：min(峰值算力, 算术强度 · 带宽)。任何点都不会高于它。
#
# 下一课的主角 MLA 也画在图里。它的 128 个头共用每个 token 的同一行缓存，共 576 个数：算分数时全部用上，加权求和时只用其中 512 个。

# %% tags=["claim-scatter"]
points = [
    ("weights at batch 1; attention, MHA", attention_intensity(64, 8192)),
    ("attention, GQA 64/8", attention_intensity(8, 8192)),
    ("weights at batch 32", rl.gemm_intensity(32, 8192, 8192)),
    ("attention, MQA 64/1", attention_intensity(1, 8192)),
    ("attention, MLA, 128 heads", rl.mla_decode_intensity(128, 512, 64, S=8192)),
    ("weights, prompt of 1,000", rl.gemm_intensity(1000, 8192, 8192)),
]
print(f"MLA, for many tokens: 128 x (576 + 512) / 576 = {128 * (576 + 512) / 576:.1f} FLOP per byte")
picture(p03_intensity.roofline, points=[(name, float(x)) for name, x in points], height=3.5)

# %% [markdown] lang="en"
# MHA and GQA sit far down the slope, at 1 and 8 of 295. MLA comes close to the ridge: nearly for it alone, decode
# attention can be limited by arithmetic.
#
# ## Where batching stops being free
#
# Now put a whole decode step together. A table in many talks reads the weights once, counts two FLOPs per parameter and
# sequence, and concludes that batching is free up to 295. (Its "gap" is ridge over intensity.) Beside it are steps that
# read the K/V as well. On each GPU a cached token has 163,840 B of it. To attend to it takes 1,310,720 FLOPs: in each of
# 80 layers 4 H D, with 32 of the 64 query heads.

# %% [markdown] lang="zh" en="173186e2"
# MHA 和 GQA 停在斜线的低处，算术强度只有 1 和 8，而脊点在 295。MLA 已经接近脊点：解码注意力有可能受限于算力的，几乎只有它。
#
# ## 批处理从哪里起不再免费
#
# 现在把一整步解码合起来看。很多技术分享里都有这样一张表：权重读一遍，每个参数、每个序列算两个 FLOP，结论是批大小到 295 为止都是免费的。（表中的 gap 是脊点除以算术强度。）旁边再列出把 K/V 也读进去的结果。在每块 GPU 上，一个缓存的 token 有 163,840 B 的 K/V。对它做一次注意力要 1,310,720 FLOP：共 80 层，每层 4 H D；64 个查询头里，这块 GPU 分到 32 个。


# %% tags=["claim-batch-table", "claim-kv-ignored"]
def decode_step(gpu, S, B):
    """Seconds of a decode step, and its intensity."""
    moved = gpu.weight_bytes + gpu.kv_bytes_per_token * S * B
    flops = (gpu.flops_per_token + gpu.flops_per_score * S) * B
    return least_time(flops, moved, gpu.peak, gpu.bandwidth)[0], flops / moved


for field, value in vars(half).items():
    print(f"{field:<20} {value:,}" if isinstance(value, int) else f"{field:<20} {value}")
print()
print("batch   " + "".join(f"{name:>30}" for name in ("without K/V", "1,024 tokens each", "8,192 tokens each")))
print("        " + "    FLOP/B   gap      ms   tok/s" + "       ms   tok/s   slower" * 2)
for B in (1, 8, 32, 295):
    seconds, intensity = decode_step(half, 0, B)
    row = f"{B:5} {intensity:12.0f} {float(RIDGE) / intensity:5.1f} {seconds * 1e3:7.2f} {B / seconds:7,.0f}"
    for S in (1024, 8192):
        seconds, first = decode_step(half, S, B)[0], decode_step(half, S, 1)[0]
        row += f" {seconds * 1e3:8.2f} {B / seconds:7,.0f} {seconds / first - 1:+8.0%}"
    print(row)
print(f"room for K/V: {half.kv_budget / 1e9:.0f} GB, {half.kv_budget // half.kv_bytes_per_token:,} tokens. ", end="")
print(f"Batch 32 at 8,192 tokens needs {32 * 8192 * half.kv_bytes_per_token / 1e9:.1f} GB")

# %% [markdown] lang="en"
# Without K/V, batch 32 makes 1,531 tokens/s at no cost. With 1,024 tokens each it makes 1,422. With 8,192 each it makes
# 949 and every user waits 58% longer. And it does not fit: 42.9 GB of K/V for 8 GB of room.
#
# So when is a decode step compute bound at all? Each new sequence brings FLOPs and bytes. It pulls the step towards the
# ridge only if it brings more FLOPs than its bytes need. All the numbers stand above the table. Work it out for
# 1,024 tokens each: FLOPs over bytes of B sequences have to reach 295.2.

# %% [markdown] lang="zh" en="9e6786d6"
# 不算 K/V 时，批大小 32 不花任何代价就有 1,531 tokens/s。每个序列 1,024 个 token 时是 1,422。每个序列 8,192 个 token 时只有 949，而且每个用户都要多等 58%。况且根本放不下：K/V 要 42.9 GB，空间却只有 8 GB。
#
# 那么一步解码到底什么时候才计算受限？每加一个序列，既带来 FLOP，也带来字节。只有当它带来的 FLOP 多于它的字节在脊点处对应的 FLOP，才会把这一步往脊点推。要用到的数都列在上面那张表的前面。请按每个序列 1,024 个 token 算一算：B 个序列的 FLOP 数除以字节数，要达到 295.2。

# %%
predict("03.compute_batch", value=None)

# %% tags=["claim-no-batch", "claim-kv-equals-weights", "claim-throughput-ceiling"]
print(" tokens     K/V = weights   intensity for a   compute bound   no batch makes more tok/s than   fits")
print("   each          at batch      huge batch       from batch     reading K/V        computing")
for S in (512, 1024, 2048, 4096, 8192, 32768):
    per_sequence = half.kv_bytes_per_token * S
    flops = half.flops_per_token + half.flops_per_score * S
    free = rl.batch_for_ridge(half.weight_bytes, half.kv_bytes_per_token, S, flops, RIDGE)
    reading = rl.throughput_ceiling(half.bandwidth, half.kv_bytes_per_token, S)
    print(f"{S:7,} {half.weight_bytes / per_sequence:17.0f} {flops / per_sequence:17.0f} {free or 'never':>15}", end="")
    print(f" {float(reading):15,.0f} {half.peak / flops:16,.0f} {half.kv_budget // per_sequence:6}")
per_score = RIDGE * half.kv_bytes_per_token - half.flops_per_score  # what each cached token costs, in FLOPs
last = int(half.flops_per_token / per_score)
print(f"the longest context with such a batch: {last:,} tokens")

# %% [markdown] lang="en"
# It takes a batch of 948, not 295, and 47 fit. Beyond 1,487 tokens there is no such batch. However many sequences you
# add, decode of this model stays memory bound, because each brings more bytes than its FLOPs can pay for.
#
# Then throughput has a ceiling: bandwidth over the K/V of one sequence. At 8,192 tokens no batch makes more than 2,496
# tokens/s. Half of that is reached at a batch of 52, where the K/V has as many bytes as the weights. (For short
# contexts computing stops you first. The lower of the two limits is the ceiling.)
#
# Move the sliders. The dotted line is the ceiling, and batches in the shaded part do not fit. Find the longest context at
# which a batch of 32 fits on an H200. Then compare the GPUs at 8,192 tokens: which one is quicker, and why?

# %% [markdown] lang="zh" en="6a8908a8"
# 要 948 个序列，而不是 295 个，放得下的却只有 47 个。超过 1,487 个 token，就不存在这样的批大小了：无论加多少序列，这个模型的解码始终访存受限，因为每个序列带来的字节太多，它自己的 FLOP 抵不上。
#
# 于是吞吐有了上限：带宽除以一个序列的 K/V。每个序列 8,192 个 token 时，批再大也超不过 2,496 tokens/s。批大小为 52 时达到上限的一半，这时 K/V 和权重的字节数相等。（上下文短的时候，先碰到的是算力的极限。两个极限中较低的那个才是上限。）
#
# 拖动滑块。左图的点线是上限，阴影里的批放不下。找出 H200 上放得下 32 个序列的最长上下文。再比较 8,192 个 token 时的各块 GPU：哪块更快，为什么？

# %%
contexts, batches = [128, 512, 1024, 2048, 8192, 32768], [1, 8, 32, 64, 128, 295, 948]
gpus = ["a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200-sxm"]
panel(p03_decode.batching, context={1024: contexts}, batch={32: batches}, gpu={"h100-sxm": gpus})

# %% [markdown] lang="en"
# ## Exercise 3.4 - how many can I take?
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 8 lines
#
# This is what a server has to know. Write `largest_batch(gpu, S, seconds)`: the largest number of sequences with S
# tokens each, S at least 1, so that
#
# - their K/V fits: `kv_bytes_per_token` · S · B is at most `kv_budget`;
# - a decode step takes at most `seconds`, by both clocks. The step moves the `weight_bytes` and that K/V. It does
#   (`flops_per_token` + `flops_per_score` · S) · B FLOPs. The rates are `gpu.peak` and `gpu.bandwidth`.
#
# All names are attributes of `gpu`. At most includes the limit itself. Return an `int`, 0 if not even one sequence will
# do. You may try batch after batch.
#
# Small case: 64 bytes of weights, 4 bytes of K/V a token, a budget of 64 bytes, a bandwidth of 16 bytes/s, a high peak.
# With S = 4, two sequences take (64 + 32) / 16, which is six seconds. Four would fit. So `largest_batch(gpu, 4, 6)` is
# 2.

# %% [markdown] lang="zh" en="4ac9073b"
# ## 练习 3.4 - 最多能接多少？
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 8 行
#
# 这是推理服务必须心里有数的一件事。写出 `largest_batch(gpu, S, seconds)`：每个序列有 S 个 token（S 至少为 1），在下面两个条件下最多能放多少个序列：
#
# - K/V 放得下：`kv_bytes_per_token` · S · B 不超过 `kv_budget`；
# - 按两个时钟算，一步解码都不超过 `seconds`。这一步要搬 `weight_bytes` 和上面那些 K/V，要做 (`flops_per_token` + `flops_per_score` · S) · B 个 FLOP，速率是 `gpu.peak` 和 `gpu.bandwidth`。
#
# 这些名字都是 `gpu` 的属性。“不超过”包括恰好相等。返回 `int`；一个序列都不行就返回 0。逐个试批大小也可以。
#
# 小例子：权重 64 字节，每个 token 的 K/V 4 字节，预算 64 字节，带宽 16 字节/s，峰值很高。S = 4 时，两个序列要 (64 + 32) / 16，也就是六秒。空间放得下四个。所以 `largest_batch(gpu, 4, 6)` 是 2。


# %% exercise="largest_batch"
def largest_batch(gpu, S, seconds):
    """The largest batch of sequences of S tokens whose K/V fits and whose decode step takes at most `seconds`."""
    ### BEGIN SOLUTION
    B = 0
    while True:
        cache = gpu.kv_bytes_per_token * S * (B + 1)
        flops = (gpu.flops_per_token + gpu.flops_per_score * S) * (B + 1)
        needed, _ = least_time(flops, gpu.weight_bytes + cache, gpu.peak, gpu.bandwidth)
        if cache > gpu.kv_budget or needed > seconds:
            return B
        B += 1
    ### END SOLUTION


# %% test="largest_batch" points=2
largest_batch = check("03.largest_batch", largest_batch)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Your `least_time` gives the step's time. Three things can stop you: reading, computing, room.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Start at B = 0. Work out K/V, FLOPs and time for B + 1. If it does not fit or takes too long, B is the answer. If not,
# go on with B + 1.
#
# </details>
# <details><summary>Hint 3: "0 when not even one will do" fails</summary>
#
# Test a batch before you accept it, the first one too. The weights alone may take too long.
#
# </details>

# %% [markdown] lang="zh" en="8e5cb593"
# <details><summary>提示 1：从哪里入手</summary>
#
# 一步要多久，用你写的 `least_time` 算。能挡住你的有三样：读、算、空间。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 从 B = 0 开始，算出 B + 1 时的 K/V、FLOP 数和时间。放不下或者太慢，答案就是 B；否则接着试下一个。
#
# </details>
# <details><summary>提示 3：“0 when not even one will do”这一项不通过</summary>
#
# 接受一个批大小之前先检查它，第一个也不例外。光是读权重就可能已经超时。
#
# </details>

# %% tags=["claim-free-batching"]
roomy = dataclasses.replace(half, kv_budget=10**15)
print("30% slower than one sequence:   step at most   batch   of which fit   if K/V took no time")
for S in (128, 512, 1024, 2048, 8192):
    limit = 1.3 * decode_step(half, S, 1)[0]
    print(f"{S:7,} tokens each {limit * 1e3:25.1f} ms {largest_batch(roomy, S, limit):7}", end="")
    print(f" {largest_batch(half, S, limit):14} {limit * half.peak / half.flops_per_token:21.0f}")
llama = get_model("llama-3-70b")
exact = params(llama) - llama.vocab_size * llama.hidden_size  # all but the embedding table; 2 bytes each, over 2 GPUs
print(f"exactly, {exact:,} parameters are read, not 70e9: {exact / half.bandwidth * 1e3:.2f} ms")

# %% [markdown] lang="en"
# "Batch 32 for less than 30% more time, and almost free up to 295." The first half holds at 1,024 tokens each, and
# fails at 8,192: 16 sequences, of which 5 fit. The second half is the last column, which is 295 and 30% more. It leaves
# out what fills a server: long contexts and a small room.
#
# The command line answers for any model and GPU:
# `mini-engine size --model llama-3-70b --gpu h100-sxm --tp 2 --context 8192 --batch 32`. It counts exactly, and without
# the embedding table, of which a token reads one row. So its weights take 20.75 ms where we said 20.90.
#
# ## Your own roofline
#
# Now measure: the best product and the best read of your machine give the roof. Crosses are single products, made to
# wait for memory by taking turns over many weights. Circles and squares are whole steps of the engine, with the tokens
# in the step beside them.

# %% [markdown] lang="zh" en="10d2543b"
# “批大小 32 只多花不到 30% 的时间，到 295 为止几乎免费。”前半句在每个序列 1,024 个 token 时成立，到 8,192 就不成立了：最多 16 个序列，而放得下的只有 5 个。后半句对应最后一列，也就是 295 再加 30%。真正把服务器塞满的因素，它没有算进去：上下文很长，空间很小。
#
# 用命令行可以查任何模型和 GPU：`mini-engine size --model llama-3-70b --gpu h100-sxm --tp 2 --context 8192 --batch 32`。它数的是精确的参数量，而且不算嵌入表（每个 token 只查其中一行），所以读权重是 20.75 ms，而前面我们算的是 20.90。
#
# ## 你自己的屋顶线
#
# 现在动手测：用你的机器上最快的矩阵乘法和最快的读取，定出屋顶线。叉号是单个矩阵乘法；测的时候让许多权重轮流上场，使它们不得不等内存。圆点和方块是引擎完整的一步，旁边的数字是这一步的 token 数。

# %% tags=["nbval-ignore-output", "claim-measured-roofline"]
rates = measure_rates()
products = measure_products([1, 4, 16, 64, 256])
steps = measure_steps(model, prefills=[32, 256], batches=[1, 4, 16, 64])
print(
    f"peak {rates.flops / 1e9:.0f} GFLOP/s, bandwidth {rates.bandwidth / 1e9:.0f} GB/s, ridge {rates.ridge:.1f} FLOP/B"
)
print("step          FLOP/B      ms   at least ms   bound by")
for step in steps:
    seconds, busy = least_time(step.flops, step.bytes, rates.flops, rates.bandwidth)
    bound = "compute" if step.intensity >= rates.ridge else "memory"
    print(f"{step.name:<12} {step.intensity:7.1f} {step.seconds * 1e3:7.1f} {seconds * 1e3:13.1f}   {bound}")
picture(p03_decode.measured, rates=rates, products=products, steps=steps, height=3.5)

# %% [markdown] lang="en"
# Read it from the left. Decode of one token has an intensity of 1, and goes at a small part of the peak. Each further
# sequence moves it to the right and up, until the slope ends at this machine's ridge. A long prompt stands on the flat
# from the start.
#
# That answers the first cell, but not in full. For one token, reading explains only a part of the time: compare "ms"
# with "at least". The rest is neither clock. A step also has norms, rotations, attention over a scattered cache,
# and Python, and in a small model they weigh much.
#
# The times are processor time of one thread: the best of a few tries for products and reads, a single run for prefill,
# the median of five steps for decode. Other programs still share caches and memory. Repeat the cell, and see how much
# the numbers differ. Where the processor's cache holds all weights, points can rise above the roof.
#
# What holds on every machine is the count: two FLOPs for each weight that a token meets, and attention on top. The
# output head meets only the last token of a prompt. So prefill comes to less than 2 for each parameter and token.

# %% [markdown] lang="zh" en="75865454"
# 从左往右看。解码一个 token 的算术强度是 1，速率只有峰值的一小部分。每多一个序列，点就往右上方挪一些，直到这台机器的脊点，斜线到那里为止。长提示词一开始就落在平的那一段上。
#
# 这回答了第一次测量留下的问题，但还不完整。只解码一个 token 时，读取只能解释其中一部分时间，对比“ms”和“at least”两列就知道。其余的不属于任何一个时钟：一步里还有归一化、旋转位置编码（RoPE）、在零散的缓存上做注意力，以及 Python 本身。模型越小，它们占的比重越大。
#
# 这里的时间是单线程的处理器时间：矩阵乘法和读取取几次中最快的，预填充只跑一次，解码取五步的中位数。别的程序照样会来抢处理器缓存和内存。重跑一遍这个单元格，看看数字会差多少。如果处理器缓存装得下全部权重，点可能会高过屋顶线。
#
# 换哪台机器都不变的是计数：一个 token 每用到一个权重，就是两个 FLOP，注意力另算。输出头只用在提示词的最后一个 token 上，所以预填充平均到每个参数、每个 token，还不到 2 个 FLOP。

# %% tags=["claim-counts"]
from mini_engine.course.measured_steps import step_bytes, step_work

first = step_work(spec, [1], [0])
print(f"parameters: {params(spec):,}; FLOPs of the first token: {first:,}, ", end="")
print(f"{first / params(spec):.3f} for each parameter")
for name, new, done in (("decode 1", [1], [18]), ("decode 64", [1] * 64, [18] * 64), ("prefill 256", [256], [0])):
    flops, moved = step_work(spec, new, done), step_bytes(spec, [n + d for n, d in zip(new, done)], 2, 4)
    print(f"{name:<12} {flops:15,} FLOPs {moved:13,} B   {flops / moved:6.1f} FLOP/B", end="")
    print(f"   {flops / sum(new) / params(spec):.3f} for each parameter and token")
skipped = 2 * spec.vocab_size * spec.hidden_size * 255
print(f"{skipped:,} FLOPs of the output head are spared for 255 tokens of the prompt")

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# The same 70B model, now on two H200s: 989e12 FLOP/s and 4.8e12 bytes/s each. Two numbers. What is the ceiling of
# throughput at 8,192 tokens each? And up to which context is some batch compute bound?

# %% [markdown] lang="zh" en="3da5de0c"
# ## 自测
#
# 还是那个 70B 模型，这回用两块 H200：每块 989e12 FLOP/s，4.8e12 字节/s。两个数：每个序列 8,192 个 token 时，吞吐的上限是多少？上下文最长到多少，还存在某个批大小，使解码是计算受限？

# %% tags=["self-check"]
predict("03.ceiling", value=None)
predict("03.longest", value=None)

# %% [markdown] lang="en" tags=["in-production"]
# ## In production
#
# Option names as of 2025. The rule for shared contexts was read in the main branch of vLLM, in 2025.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | a limit on the batch | `--max-num-seqs` | `--max-running-requests` |
# | a limit on the tokens of a step | `--max-num-batched-tokens` | `--chunked-prefill-size` (prompts only) |
# | one reading for a shared context | `use_cascade_attention`: from 256 shared tokens and 8 requests on, if a rough model says it pays | - |
#
# A shared context is read once only by a kernel, a program on the GPU, that is written for it. Sharing blocks saves
# room with any kernel, but each sequence then still reads them by itself.

# %% [markdown] lang="zh" en="7187e47f"
# ## 在生产系统中
#
# 选项名以 2025 年为准。共用上下文的那条规则，依据 2025 年 vLLM main 分支的源码。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | 限制批大小 | `--max-num-seqs` | `--max-running-requests` |
# | 限制一步的 token 数 | `--max-num-batched-tokens` | `--chunked-prefill-size`（只管提示词） |
# | 共用的上下文只读一遍 | `use_cascade_attention`：共用至少 256 个 token、至少 8 个请求，并且一个粗略的模型认为划算 | - |
#
# 要让共用的上下文只读一遍，必须有专门为此写的 kernel（在 GPU 上跑的程序）。块只要共享了，用哪种 kernel 都能省空间，但每个序列还是各读各的。

# %% [markdown] lang="en" tags=["limits"]
# > **What this does not show**
# >
# > - Data-sheet peaks are peaks. Real kernels reach a part of them, and starting each of them takes time too.
# > - Two GPUs have to exchange partial results in every layer. That time is left out.
# > - Softmax, norms and sampling are left out, and so is the write of the new token's K and V.
# > - A mixture of experts reads more experts as the batch grows. Its batch is not shared as freely as a dense model's.
# > - On a GPU, `measure_rates("cuda")` and `measure_products([1, 64, 512], "cuda")` measure in bf16. No such numbers are
# >   stored here.
# > - The measured points are those of one CPU thread in fp32, with weights kept in 2 bytes where the processor can.

# %% [markdown] lang="zh" en="e18065a2"
# > **这一课没有说明的事**
# >
# > - 规格书上的峰值终究是峰值。真实的 kernel 只能达到其中一部分，每启动一个也要花时间。
# > - 两块 GPU 每一层都要交换部分结果，这段时间没有算。
# > - softmax、归一化和采样没有算，新 token 的 K 和 V 的写入也没有算。
# > - 混合专家模型（MoE）的批越大，读到的专家越多，不像稠密模型那样整批共用一份权重。
# > - 在 GPU 上，`measure_rates("cuda")` 和 `measure_products([1, 64, 512], "cuda")` 以 bf16 测量。这里没有存这样的数据。
# > - 测出来的点来自一个 CPU 线程，用 fp32 计算；处理器支持时，权重以 2 字节存放。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Why do other tables give other step times?</summary>
#
# Two habits. First, may K/V be read while the products are computed? We say yes: max(weights + K/V, computing). Others
# say that attention takes its turn: K/V + max(weights, computing). The two differ only where computing takes longer
# than reading the weights. Second, units: a cache of 6,710,886,400 B is 6.71 GB or 6.25 GiB. At least one well-known
# table prints "6.7 GiB". The next cell shows both.
#
# </details>
# <details><summary>Does quantising the weights help decode?</summary>
#
# Yes, twice. Half the bytes is half the time on the slope. And it frees room for K/V. Prefill gains only if the
# arithmetic is done in 8 bits too.
#
# </details>
# <details><summary>Is a GPU at 100% utilisation in <code>nvidia-smi</code> busy?</summary>
#
# No. That figure says that some kernel was running. A decode step of batch 1 can show 100% while the arithmetic units
# wait.
#
# </details>
# <details><summary>Why not always run the largest batch that fits?</summary>
#
# Because each user's tokens then come slower. Throughput rises, and so does the time of a step. The limit comes from
# what you promised, as in exercise 3.4.
#
# </details>
# <details><summary>Is memory bound a bad thing?</summary>
#
# No. It says what to improve: fewer bytes, or more tokens per byte. Grouped heads, latents, quantised caches and shared
# prefixes all do that. They are the next lessons.
#
# </details>

# %% [markdown] lang="zh" en="b6339008"
# ## 常见问题
#
# <details><summary>为什么别处的表给出的每步时间不一样？</summary>
#
# 原因有两个。第一，算矩阵乘法的同时能不能读 K/V？我们认为能：max(权重 + K/V, 计算)。另一种算法让注意力单独占一段时间：K/V + max(权重, 计算)。只有在计算比读权重更久时，两者才不同。第二，单位：6,710,886,400 B 的缓存是 6.71 GB，也就是 6.25 GiB。至少有一张知名的表把它印成了“6.7 GiB”。下一个单元格把两件事都算给你看。
#
# </details>
# <details><summary>量化权重对解码有帮助吗？</summary>
#
# 有，而且是双份。在斜线上，字节减半，时间就减半；腾出来的空间还能放 K/V。预填充则要连计算也用 8 位，才有收益。
#
# </details>
# <details><summary><code>nvidia-smi</code> 显示利用率 100%，GPU 就真的在忙吗？</summary>
#
# 不一定。这个数只说明有 kernel 在跑。批大小为 1 的解码也可以显示 100%，而计算单元其实在等。
#
# </details>
# <details><summary>为什么不总是用放得下的最大批？</summary>
#
# 因为那样每个用户拿到 token 就更慢。吞吐上去了，每一步的时间也上去了。上限取决于你向用户承诺的速度，就像练习 3.4 那样。
#
# </details>
# <details><summary>访存受限是坏事吗？</summary>
#
# 不是。它告诉你该改进什么：少搬字节，或者让每个字节产出更多 token。分组的头、潜在向量、量化的缓存、共享的前缀，做的都是这件事，也正是后面几课的内容。
#
# </details>


# %% tags=["claim-additive", "claim-units"]
def additive_ms(B, kv, weights):
    """Llama-2-13B in bf16 on eight TPU v5e, where attention takes its turn: B sequences with `kv` bytes each."""
    step = rl.decode_step_time_additive(B, kv, weights, Fraction("8.2e11"), 13e9, 197e12, chips=8)
    return float(step.total) * 1e3


for B, S in ((1, 8192), (512, 128)):
    kv = 819_200 * S
    ours = least_time(2 * 13e9 * B, 26e9 + kv * B, 8 * 197e12, 8 * 8.2e11)[0] * 1e3
    print(f"B = {B:3}, S = {S:5,}: {ours:.3f} ms; with attention in its turn {additive_ms(B, kv, 26e9):.3f} ms")
kv = 819_200 * 8192
print(f"K/V of 8,192 tokens: {kv:,} B = {kv / 1e9:.2f} GB = {kv / 2**30:.2f} GiB")
in_gib = additive_ms(1, Fraction("6.7") * 2**30, 26 * 2**30)
print(f"with 6.7 and 26 taken for GB: {additive_ms(1, 6.7e9, 26e9):.3f} ms; for GiB: {in_gib:.3f} ms")

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - Time is at least FLOPs over peak, and at least bytes over bandwidth. Which is larger depends on the intensity
#   against the ridge.
# - Tokens in a step share the weights: 319 of them make a large product compute bound. Sequences do not share K/V.
# - So with long contexts decode is memory bound at any batch, and throughput ends at bandwidth over K/V bytes.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | arithmetic intensity | 算术强度 | "how heavy it is" | FLOPs over bytes moved |
# | ridge point | 脊点 | "the knee" | peak over bandwidth |
# | memory bound | 访存受限 | "slow" | bytes set the time |
# | compute bound | 计算受限 | "fast" | FLOPs set the time |
# | roofline | 屋顶线 | "the best you can get" | the smaller of peak and intensity times bandwidth |
#
# **Open exercises.** *Easy:* redo the batch table for an H200. Which of its numbers does not change? *Medium:* a step
# mixes 32 decodes with 512 prompt tokens. What bounds it, and how much longer does it take than the 32 alone?
# *Research:* fit one efficiency for reading and one for computing to your measured steps. How well do they predict a
# step you left out?
#
# **Back:** [02 · How large is the cache?](lessons/02_kv_cache_size.ipynb) · **Next:**
# [04 · GQA and MLA](lessons/04_gqa_and_mla.ipynb)

# %% [markdown] lang="zh" en="4a29170a"
# ## 三句话总结
#
# - 时间至少是 FLOP 数除以峰值算力，也至少是字节数除以带宽。哪个更大，要看算术强度在脊点的哪一侧。
# - 一步里的 token 共用权重：319 个 token 就能让一次大的矩阵乘法变成计算受限。但序列之间不共用 K/V。
# - 所以上下文一长，批再大，解码也是访存受限，吞吐的上限是带宽除以 K/V 的字节数。
#
# | 术语 | 英文 | 常见说法 | 含义 |
# |---|---|---|---|
# | 算术强度 | arithmetic intensity | “有多吃算力” | FLOP 数除以搬运的字节数 |
# | 脊点 | ridge point | “拐点” | 峰值算力除以带宽 |
# | 访存受限 | memory bound | “慢” | 时间由字节数决定 |
# | 计算受限 | compute bound | “快” | 时间由 FLOP 数决定 |
# | 屋顶线 | roofline | “最好能到多少” | 峰值算力与算术强度乘带宽，取较小者 |
#
# **开放练习。** *简单*：换成 H200，重做那张批大小的表。哪些数不变？*中等*：一步里混着 32 个解码和 512 个提示词 token。瓶颈是什么？比单跑那 32 个慢多少？*研究*：用你测到的那些步，给读取和计算各拟合一个效率。再用它们预测没参与拟合的一步，准不准？
#
# **上一课：** [02 · 缓存有多大？](lessons/02_kv_cache_size.ipynb) · **下一课：** [04 · GQA 与 MLA](lessons/04_gqa_and_mla.ipynb)
