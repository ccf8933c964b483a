# ---
# jupyter:
#   course:
#     translated: false
# ---

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

# %% tags=["claim-gemm"]
sizes = [256, 512, 1024, 2048, 4096, 8192, 16384]
panel(p03_intensity.gemm, batch={1: [1, 8, 32, 128, 512]}, new_tokens={1000: [1, 10, 100, 1000, 2048]}, d={8192: sizes})

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
# Move the sliders. The red line is the ceiling, and batches in the shaded part do not fit. Find the longest context at
# which a batch of 32 fits on an H200. Then compare the GPUs at 8,192 tokens: which one is quicker, and why?

# %%
contexts = [128, 512, 1024, 2048, 8192, 32768]
gpus = ["a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200-sxm"]
panel(p03_decode.batching, context={1024: contexts}, batch={32: [1, 8, 32, 64, 128, 295, 948]}, gpu={"h100-sxm": gpus})

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

# %% tags=["claim-free-batching"]
roomy = dataclasses.replace(half, kv_budget=10**15)
print("30% slower than one sequence:   step at most   batch   of which fit   if K/V took no time")
for S in (128, 512, 1024, 2048, 8192):
    limit = 1.3 * decode_step(half, S, 1)[0]
    print(f"{S:7,} tokens each {limit * 1e3:25.1f} ms {largest_batch(roomy, S, limit):7}", end="")
    print(f" {largest_batch(half, S, limit):14} {limit * half.peak / half.flops_per_token:21.0f}")
exact = params(get_model("llama-3-70b"))  # 2 bytes each, over 2 GPUs
print(f"with all {exact:,} parameters, not 70e9, the weights take {exact / half.bandwidth * 1e3:.2f} ms")

# %% [markdown] lang="en"
# "Batch 32 for less than 30% more time, and almost free up to 295." The first half holds at 1,024 tokens each, and
# fails at 8,192: 16 sequences, of which 5 fit. The second half is the last column, which is 295 and 30% more. It leaves
# out what fills a server: long contexts and a small room.
#
# The command line answers for any model and GPU: `mini-engine size --model llama-3-70b --gpu h100-sxm --tp 2 --context
# 8192 --batch 32`. It counts every parameter, so its weights take 21.06 ms where we said 20.90.
#
# ## Your own roofline
#
# Now measure: the best product and the best read of your machine give the roof. Crosses are single products, made to
# wait for memory by taking turns over many weights. Circles and squares are whole steps of the engine, with the tokens
# in the step beside them.

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
# That answers the first cell, but not in full. For one token, reading explains only about a third of the time: compare
# "ms" with "at least". The rest is neither clock. A step also has norms, rotations, attention over a scattered cache,
# and Python, and in a small model they weigh much.
#
# The times are processor time of one thread: the best of a few tries for products and reads, a single run for prefill,
# the median of five steps for decode. Other programs still share caches and memory. Repeat the cell, and see how much
# the numbers differ. Where the processor's cache holds all weights, points can rise above the roof.
#
# What holds on every machine is the count: two FLOPs for each weight that a token meets, and attention on top. The
# output head meets only the last token of a prompt. So prefill comes to less than 2 for each parameter and token.

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
# <details><summary>Is a GPU at 100% utilisation in `nvidia-smi` busy?</summary>
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
