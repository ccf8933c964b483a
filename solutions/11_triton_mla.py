# %% [markdown] lang="en" tags=["goals"]
# # 11 · Triton MLA decode kernel
#
# **Load it once, use it twice.**
#
# 120 to 180 minutes · Triton, no GPU needed · after lessons 04 and 10
#
# After this lesson you can
#
# - cut a context in parts, and put their results together exactly;
# - write a decode kernel over latents, for any number of heads, and let the engine write text with it;
# - say how intense MLA decode is, and from how many heads on it is compute bound.
#
# As in lesson 10, the next cell decides where kernels run: compiled on a GPU, else interpreted on the CPU.

# %% [markdown] lang="zh" en="fbfdcbd4"
# # 11 · Triton MLA 解码 kernel
#
# **加载一次，用两次。**
#
# 120 到 180 分钟 · Triton，不需要 GPU · 先学第 04 课和第 10 课
#
# 学完这一课，你能够：
#
# - 把上下文切成几段，再把各段的结果精确地合并起来；
# - 写出直接在潜在向量上做解码的 kernel，头数任意，并让引擎用它写出文本；
# - 说清 MLA 解码的计算强度有多大，头数达到多少就成了计算受限。
#
# 和第 10 课一样，下一个单元格决定 kernel 在哪里运行：有 GPU 就编译，没有就在 CPU 上解释执行。

# %% tags=["nbval-ignore-output"]
from mini_engine.course.own_kernels import start_kernels

triton, tl = start_kernels()

# %%
import json
import math
import subprocess
import sys

import numpy as np
import torch

from mini_engine import LLM, SamplingParams, get_gpu, get_model
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.latent_cases import Latents, bytes_of_the_pool
from mini_engine.course.panels import p03_intensity
from mini_engine.course.panels import p11_triton_mla as pictures
from mini_engine.kernels import is_interpreted, kernel_device
from mini_engine.kernels.config import choose_num_splits
from mini_engine.roofline import mla_decode_intensity, ridge_point

device = kernel_device()
lite, v2, gpu = get_model("deepseek-v2-lite"), get_model("deepseek-v2"), get_gpu("h100-sxm")

# %% [markdown] lang="en"
# ## The pain
#
# In [lesson 10](lessons/10_triton_gqa.ipynb) a program took one K/V head of one sequence. MLA has a single latent for all heads. So one
# sequence may be one program.

# %% [markdown] lang="zh" en="6cb8c562"
# ## 痛点
#
# 在[第 10 课](lessons/10_triton_gqa.ipynb)里，一个程序实例（program）负责一个序列的一个 K/V 头。MLA 的所有头共用同一个潜在向量，于是一个序列可能只用一个 program。
#
# 先猜一猜：DeepSeek-V2-Lite 有 16 个头，一个 program 就负责一个序列的全部 16 个头。现在只有一个请求在解码。H100 有 132 个处理器，其中有多少个没事可做？

# %%
predict("11.idle", value=None)

# %% tags=["claim-pain"]
PROCESSORS = 132  # of an H100
print("sequences  programs  idle processors")
for batch in (1, 8, 132):
    programs = batch * math.ceil(lite.num_attention_heads / 16)
    print(f"{batch:>9}{programs:>10}{max(0, PROCESSORS - programs):>17}")
latents = 131_072 * lite.latent_dim * 2
whole = latents / float(gpu.memory_bandwidth)
print(f"latents of 131,072 tokens, one layer: {latents / 1e6:.1f} MB")
print(
    f"at all of an H100's bandwidth {1e6 * whole:.0f} us, at a fair share for one of 132: {1e6 * whole * 132:,.0f} us"
)

# %% [markdown] lang="en"
# Computed, not measured, and one processor alone may get more than a fair share. Still: a long request at batch 1 leaves most of the GPU
# idle.
#
# ## Cut the context
#
# Give each program one part of the context. A softmax over all tokens needs the sum over all tokens, though. What must a part leave
# behind, so that nothing is lost?

# %% [markdown] lang="zh" en="5a6704f6"
# 这是算出来的，不是测出来的；而且只有一个处理器在读时，它能用的带宽也许超过平均份额。但结论不变：batch 大小为 1 时，一个长请求会让 GPU 的大部分闲着。
#
# ## 把上下文切开
#
# 让每个 program 只负责上下文的一段。可是对全部 token 做 softmax，需要对全部 token 求和。每一段要留下什么，才不会丢失信息？

# %% tags=["diagram"]
svg(*pictures.parts_and_combine())

# %% [markdown] lang="en"
# Two things. Its own attention, as if there were no other tokens. And one number: how much the powers of its tokens, $P_i$, sum up to.
# As a logarithm, so that it cannot overflow: the **log-sum-exp**. Scores are in base 2 here, as GPUs compute powers of 2:
#
# $$\ell_i = \log_2 \sum_{n \in P_i} 2^{s_n} \qquad\qquad o = \frac{\sum_i 2^{\ell_i}\, o_i}{\sum_i 2^{\ell_i}}$$
#
# This is **split-KV**, or flash-decoding. The six tokens of lesson 10 again, in three parts. The last one is empty.

# %% [markdown] lang="zh" en="3bbb2c82"
# 要留下两样东西。一样是它自己的注意力结果，就当没有别的 token。另一样是一个数：这一段的 token（记作 $P_i$）的分数，求幂之后加起来有多大。这个数存成对数，免得上溢，这就是**指数和的对数**（log-sum-exp）。这里的分数以 2 为底，因为 GPU 算的就是 2 的幂：
#
# $$\ell_i = \log_2 \sum_{n \in P_i} 2^{s_n} \qquad\qquad o = \frac{\sum_i 2^{\ell_i}\, o_i}{\sum_i 2^{\ell_i}}$$
#
# 这种做法叫 **KV 切分**（split-KV），也叫 flash-decoding。还是第 10 课的那六个 token，这次分成三段，最后一段是空的。


# %% tags=["claim-steps"]
def attend(s, v):
    """Result and log-sum-exp of a part, scores in base 2. An empty part has no result."""
    if len(s) == 0:
        return np.nan, -np.inf
    top = s.max()
    weights = np.exp2(s - top)
    return weights @ v / weights.sum(), top + np.log2(weights.sum())


scores, values = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 4.0]), np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
in_base_2 = scores * math.log2(math.e)
outs, lses = np.array([attend(in_base_2[part], values[part]) for part in (slice(0, 4), slice(4, 6), slice(6, 6))]).T
print("results:", np.round(outs, 4), " log-sum-exps:", np.round(lses, 4))
powers = np.exp2(lses - lses.max())
weights = powers / powers.sum()
some = weights > 0
print("weights:", np.round(weights, 4))
print(f"combined {weights[some] @ outs[some]:.6f}, all at once {attend(in_base_2, values)[0]:.6f}")
print(f"plain mean of the two: {outs[some].mean():.6f}")

# %% [markdown] lang="en"
# The mean is wrong: that is the missing **rescale**. And an empty part has nothing to give. Its log-sum-exp is minus infinity, so its
# weight is 0. Its result was never computed, and 0 × NaN is NaN. So nobody may multiply by it.
#
# ## Exercise 11.1 - one part
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 22 lines
#
# Take the kernel of exercise 10.2. Program `split` attends to tokens `split * tokens` onwards, at most `tokens` of them, and none behind
# the context.
#
# - Store its result at `part_ptr + split * part_stride + d`, and its log-sum-exp at `lse_ptr + split`.
# - `scale_log2` is the scale times log2(e). So scores are `q · k * scale_log2`, and powers are `tl.exp2`.
# - A part ends anywhere, also within a tile. K and V have strides of their own: `k_stride` and `v_stride`.
# - An empty part: its log-sum-exp is minus infinity. What its result holds, or if it is stored at all, is your choice.
#
# Small case: 3 tokens in 2 parts of 16. Program 1 has none. What is its log-sum-exp if `top` and `total` keep their first values?

# %% [markdown] lang="zh" en="098ee540"
# 直接求平均是错的：少了**重新缩放**（rescale）这一步。空的一段什么也贡献不了：它的 log-sum-exp 是负无穷，权重就是 0。它的结果从来没有算过，而 0 × NaN 还是 NaN。所以不能用它的结果去乘。
#
# ## 练习 11.1 - 一段
#
# 难度 3/5 · 重要性 5/5 · 20 分钟 · 大约 22 行
#
# 从练习 10.2 的 kernel 改起。program `split` 从第 `split * tokens` 个 token 开始做注意力（从 0 数起），最多 `tokens` 个，不能超出上下文。
#
# - 结果存到 `part_ptr + split * part_stride + d`，log-sum-exp 存到 `lse_ptr + split`。
# - `scale_log2` 是 scale 乘以 log2(e)。所以分数是 `q · k * scale_log2`，求幂用 `tl.exp2`。
# - 一段可以在任何位置结束，也可能在一个 tile 的中间。K 和 V 各有自己的步长：`k_stride` 和 `v_stride`。
# - 空的一段：log-sum-exp 是负无穷。它的结果里放什么、存不存，都随你。
#
# 小例子：3 个 token 分成 2 段，每段最多 16 个。program 1 一个 token 也没分到。如果 `top` 和 `total` 一直是初始值，它的 log-sum-exp 是多少？


# %% exercise="attend_parts"
# needs Triton
@triton.jit
def part_kernel(
    q_ptr, k_ptr, v_ptr, part_ptr, lse_ptr, length, tokens, scale_log2, k_stride, v_stride, part_stride,
    D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Store attention of q[D] over one part at part_ptr, and its log-sum-exp at lse_ptr."""
    ### BEGIN SOLUTION
    split = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + d, mask=d < D, other=0.0)
    begin = split * tokens
    end = tl.minimum(begin + tokens, length)
    top = float("-inf")
    total = 0.0
    out = tl.zeros([BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        tile = (n < end)[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)
        v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)
        s = tl.where(n < end, tl.sum(q[None, :] * k, 1) * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(s - new_top)
        total = total * shrink + tl.sum(weights, 0)
        out = out * shrink + tl.sum(weights[:, None] * v, 0)
        top = new_top
    some = tl.where(total == 0.0, 1.0, total)
    tl.store(part_ptr + split * part_stride + d, out / some, mask=d < D)
    tl.store(lse_ptr + split, top + tl.log2(some))
    ### END SOLUTION


def attend_parts(q, k, v, scale, tokens, num_splits):
    """q[D], k[S, D], v[S, D] -> parts[num_splits, D] and their lse[num_splits]."""
    (S, D) = k.shape
    parts = torch.full((num_splits, D), torch.nan, device=q.device)
    lse = torch.full((num_splits,), torch.nan, device=q.device)
    part_kernel[(num_splits,)](
        q, k, v, parts, lse, S, tokens, scale * math.log2(math.e), k.stride(0), v.stride(0), parts.stride(0),
        D=D, BLOCK_N=16, BLOCK_D=triton.next_power_of_2(D),
    )  # fmt: skip
    return parts, lse


# %% test="attend_parts" points=2
# needs Triton
attend_parts = check("11.partial", attend_parts)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Four things change: where the loop begins, where it ends, what is stored, and the base: `scale_log2` and `tl.exp2`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `begin = split * tokens` and `end = tl.minimum(begin + tokens, length)`. The loop is `range(begin, end, BLOCK_N)`, and the mask is
# `n < end`. After it, `top + tl.log2(total)`.
#
# </details>
# <details><summary>Hint 3: "an empty part" fails</summary>
#
# Then total is 0. `some = tl.where(total == 0.0, 1.0, total)` makes the division safe. `top + tl.log2(some)` is minus infinity by itself.
#
# </details>
#
# ## Exercise 11.2 - combine
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 6 lines
#
# Write it in PyTorch, for all sequences and heads at once: `parts[N, B, H, D]` and `lse[N, B, H]` give `[B, H, D]`.
#
# - Log-sum-exps are in base 2, and may be large. Powers of them must not overflow, nor vanish together.
# - A part with minus infinity counts for nothing, **even if it holds NaN**.
# - If all parts are empty, the result is 0.
#
# Small case: one number a part. Parts 10 and 20 with 3 and 5 give 0.2 · 10 + 0.8 · 20 = 18.

# %% [markdown] lang="zh" en="8b1836d4"
# <details><summary>提示 1：从哪里入手</summary>
#
# 改四处：循环从哪里开始，到哪里结束，存什么，还有底数：`scale_log2` 和 `tl.exp2`。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# `begin = split * tokens`，`end = tl.minimum(begin + tokens, length)`。循环是 `range(begin, end, BLOCK_N)`，掩码是 `n < end`。循环之后算 `top + tl.log2(total)`。
#
# </details>
# <details><summary>提示 3：“an empty part”这一项不通过</summary>
#
# 这时 total 是 0。`some = tl.where(total == 0.0, 1.0, total)` 让除法不出问题；`top + tl.log2(some)` 自然就是负无穷。
#
# </details>
#
# ## 练习 11.2 - 合并
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 6 行
#
# 用 PyTorch 写，一次处理所有的序列和头：由 `parts[N, B, H, D]` 和 `lse[N, B, H]` 得到 `[B, H, D]`。
#
# - log-sum-exp 以 2 为底，可能很大。求幂时不能上溢，也不能全都下溢成 0。
# - log-sum-exp 为负无穷的段不计入，**哪怕里面是 NaN**。
# - 如果每一段都是空的，结果是 0。
#
# 小例子：每段只有一个数。两段分别是 10 和 20，log-sum-exp 分别是 3 和 5，结果是 0.2 · 10 + 0.8 · 20 = 18。


# %% exercise="combine"
# needs Triton
def combine(parts, lse):
    """parts[N, B, H, D], lse[N, B, H] in base 2 -> [B, H, D]."""
    ### BEGIN SOLUTION
    top = lse.amax(0)
    top = torch.where(torch.isinf(top), 0.0, top)
    weights = torch.exp2(lse - top)
    total = weights.sum(0)
    weights = weights / torch.where(total == 0, 1.0, total)
    counted = torch.where((weights > 0)[..., None], parts, 0.0)
    return (weights[..., None] * counted).sum(0)
    ### END SOLUTION


# %% test="combine" points=2
# needs Triton
combine = check("11.combine", combine)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The last lines of the NumPy cell. There it was one sequence with one head.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. `top = lse.amax(0)`, and 0 where that is infinite.
# 2. `torch.exp2(lse - top)`, divided by its sum over parts. A sum of 0 becomes 1.
# 3. `torch.where((weights > 0)[..., None], parts, 0.0)`, times the weights, summed over parts.
#
# </details>
# <details><summary>Hint 3: "an empty part" fails</summary>
#
# Multiplying comes too late. Replace what an empty part holds before you multiply.
#
# </details>
#
# Put both to work. Does the number of parts change the result?

# %% [markdown] lang="zh" en="2291f23d"
# <details><summary>提示 1：从哪里入手</summary>
#
# 看上面 NumPy 单元格的最后几行。那里只有一个序列、一个头。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. `top = lse.amax(0)`，是无穷的地方换成 0。
# 2. `torch.exp2(lse - top)`，再除以它在各段上的和。和为 0 就换成 1。
# 3. `torch.where((weights > 0)[..., None], parts, 0.0)`，乘以权重，再对各段求和。
#
# </details>
# <details><summary>提示 3：“an empty part”这一项不通过</summary>
#
# 等乘完再处理就晚了。先把空段里的内容换掉，再乘。
#
# </details>
#
# 现在让两段代码一起工作。段数会改变结果吗？

# %% tags=["claim-any-number"]
# needs Triton
rng = np.random.default_rng(11)
q, k, v = (
    torch.from_numpy(rng.normal(size=shape).astype(np.float32)).to(device) for shape in ((32,), (300, 32), (300, 32))
)
reference = torch.softmax((k.double() @ q.double()) * 32**-0.5, 0) @ v.double()
print("parts  tokens of each  empty parts  right to 6 digits")
for num_splits in (1, 2, 3, 7, 25):
    tokens = pictures.share(300, num_splits, 16)
    parts, lse = attend_parts(q, k, v, 32**-0.5, tokens, num_splits)
    joined = combine(parts[:, None, None], lse[:, None, None])[0, 0]
    off = float((joined - reference).abs().max())
    print(f"{num_splits:>5}{tokens:>16}{int((lse == -torch.inf).sum()):>13}  {off < 1e-6}")
    assert off < 1e-6

# %% [markdown] lang="en"
# It does not, beyond rounding. So the number of parts is free to choose. What does a part cost? Each one writes its result in float32,
# and combine reads it again.

# %% [markdown] lang="zh" en="f03b628f"
# 不会，差别只在舍入。所以段数可以随意选。那么，多切一段的代价是什么？每一段都要用 float32 写出自己的结果，合并时再读一遍。
#
# 猜一猜：16 个头，每个头的结果是 512 个 float32。上下文切成 32 段。这些 program 一共写出多少字节的结果？

# %%
predict("11.parts_bytes", value=None)

# %% tags=["claim-parts-cost", "claim-counter-example"]
print("sequences  tokens of each  parts  bytes of results each  more bytes")
for batch, context in ((1, 131_072), (1, 8192), (1, 1024), (32, 8192), (264, 8192)):
    num_splits = choose_num_splits(batch, context, PROCESSORS)
    written = num_splits * 16 * 512 * 4 if num_splits > 1 else 0
    more = 2 * written / (context * 576 * 2)
    print(f"{batch:>9}{context:>16,}{num_splits:>7}{written:>23,}{more:>12.1%}")

# %% [markdown] lang="en"
# This is the engine's rule, and no search. Programs shall be twice as many as processors, and parts a power of 2: rounded up, at most 32, at
# least 256 tokens each. It looks at shapes only, so the same batch is always cut the same way. A large batch has work for all anyway: one
# part, and no combine.
#
# Move the sliders. When do more parts help, and when do they only cost? Try 64 sequences, then a short context.

# %% [markdown] lang="zh" en="610de254"
# 这是引擎的规则，不是搜索出来的：program 的数量要达到处理器的两倍；段数向上取到 2 的幂，最多 32 段，每段至少 256 个 token。它只看形状，所以同样的 batch 总是切成同样的段。batch 很大时，处理器本来就都有活干：只要一段，也不用合并。
#
# 拖动滑块。什么时候多切几段有用，什么时候只是增加代价？先试 64 个序列，再试短的上下文。

# %% tags=["claim-panel-splits"]
panel(
    pictures.splits,
    sequences=(1, 1, 64),
    context={32768: [1024, 4096, 32768, 131072]},
    num_splits={32: [1, 2, 4, 8, 16, 32, 64, 128]},
    height=4.4,
)

# %% [markdown] lang="en"
# ## Latents
#
# What [lesson 04](lessons/04_gqa_and_mla.ipynb) found, in three sentences. A token leaves one latent of 512 numbers and one rope key of
# 64, shared by all heads. W_UK is absorbed into the query, so a latent is the key as it lies there. W_UV waits until the weighted sum is
# done, so the same latent is the value.
#
# For the kernel this is one K/V head, whose key is 576 wide and whose value is the first 512 of it.

# %% [markdown] lang="zh" en="60c4a758"
# ## 潜在向量
#
# [第 04 课](lessons/04_gqa_and_mla.ipynb)的结论，三句话就能说完。每个 token 留下一个 512 个数的潜在向量和一个 64 个数的 rope 键，所有头共用。W_UK 被吸收进查询，所以潜在向量不用变换，本身就是键。W_UV 等加权求和做完再乘，所以同一个潜在向量也是值。
#
# 对 kernel 来说，这就是一个 K/V 头：键的宽度是 576，值是其中的前 512 个数。
#
# 猜一猜：池里的一行有 512 个数的潜在向量和 64 个数的 rope 键。有个 kernel 是按 K 和 V 分开来写的：先把整行当作键加载一次，再把其中的潜在向量当作值加载一次。加载的数一共相当于多少行？

# %%
predict("11.twice", value=None)
svg(*pictures.one_row())

# %% [markdown] lang="en"
# ## Exercise 11.3 - latents
#
# Difficulty 4/5 · importance 5/5 · 25 minutes · about 28 lines
#
# Write the kernel for one tile of heads: program `row` serves all heads of sequence `row`. There are 16 at most.
#
# - `q_latent` is [B, H, DC], absorbed already. `q_rope` is [B, H, DR]. Both are views with strides of their own.
# - The pool is [N, P, DC + DR], the latent first. Block and slot are found as in 10.3, and rows have stride `stride_p`.
# - A score is `(q_latent · latent + q_rope · rope) * scale_log2`: **one scale for both**. It comes from the caller, for it belongs to
#   the query before absorption: 1 / sqrt(Dn + Dr).
# - **Load each number once.** The check counts. A latent and a rope key want a tile each, since 576 is no power of 2.
# - As in lesson 10: unused slots hold NaN, table tails are nonsense, a context of 0 tokens gives zeros, H may be below 16. The pool may be
#   float16: sums are float32, and weights want the latent's type in `tl.dot`.
# - `input_precision="ieee"` in each `tl.dot`, or a GPU rounds float32 to 10 bits. The check cannot see that here.

# %% [markdown] lang="zh" en="f80fab4b"
# ## 练习 11.3 - 潜在向量
#
# 难度 4/5 · 重要性 5/5 · 25 分钟 · 大约 28 行
#
# 先写只有一个**头分块**（一组头的 tile）的 kernel：program `row` 负责序列 `row` 的全部头，最多 16 个。
#
# - `q_latent` 是 [B, H, DC]，已经吸收了 W_UK。`q_rope` 是 [B, H, DR]。两者都是视图，各有自己的步长。
# - 池的形状是 [N, P, DC + DR]，潜在向量在前。找块和槽位的方法和 10.3 一样，行的步长是 `stride_p`。
# - 分数是 `(q_latent · latent + q_rope · rope) * scale_log2`：**两部分用同一个 scale**。它由调用者传入，因为它由吸收之前的查询决定：1 / sqrt(Dn + Dr)。
# - **每个数只加载一次。** 检查会计数。潜在向量和 rope 键各用一个 tile，因为 576 不是 2 的幂。
# - 和第 10 课一样：没用到的槽位里是 NaN，块表末尾之后的数毫无意义，上下文为 0 个 token 时结果是 0，H 可以小于 16。池可能是 float16：累加用 float32，权重在 `tl.dot` 里要转成潜在向量的类型。
# - 每个 `tl.dot` 都写上 `input_precision="ieee"`，否则 GPU 会把 float32 舍入，尾数只剩 10 位。这一点，这里的检查看不出来。


# %% exercise="latent_decode"
# needs Triton
@triton.jit
def latent_kernel(
    ql_ptr, qr_ptr, pool_ptr, table_ptr, length_ptr, out_ptr, scale_log2,
    ql_stride_b, ql_stride_h, qr_stride_b, qr_stride_h, stride_n, stride_p, table_stride, out_stride_b, out_stride_h,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Store attention of all heads of one sequence over its latents."""
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    h, c, r = tl.arange(0, BLOCK_H)[:, None], tl.arange(0, BLOCK_C)[None, :], tl.arange(0, BLOCK_R)[None, :]
    heads = (h < H) & (c < DC)
    q_latent = tl.load(ql_ptr + row * ql_stride_b + h * ql_stride_h + c, mask=heads, other=0.0)
    q_rope = tl.load(qr_ptr + row * qr_stride_b + h * qr_stride_h + r, mask=(h < H) & (r < DR), other=0.0)
    length = tl.load(length_ptr + row)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = (page * stride_n + n % PAGE * stride_p)[:, None]
        latent = tl.load(pool_ptr + at + c, mask=live[:, None] & (c < DC), other=0.0)
        rope = tl.load(pool_ptr + at + DC + r, mask=live[:, None] & (r < DR), other=0.0)
        s = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")
        s += tl.dot(q_rope, tl.trans(rope), input_precision="ieee")
        s = tl.where(live[None, :], s * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(s - new_top[:, None])
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(latent.dtype), latent, input_precision="ieee")
        top = new_top
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out_ptr + row * out_stride_b + h * out_stride_h + c, out, mask=heads)
    ### END SOLUTION


def latent_decode(q_latent, q_rope, latent_pool, block_tables, context_lens, scale):
    """q_latent[B, H, Dc], q_rope[B, H, Dr], latent_pool[N, P, Dc + Dr] -> [B, H, Dc], for H up to 16."""
    (B, H, Dc), Dr, P = q_latent.shape, q_rope.shape[2], latent_pool.shape[1]
    out = torch.empty((B, H, Dc), dtype=q_latent.dtype, device=q_latent.device)
    latent_kernel[(B,)](
        q_latent, q_rope, latent_pool, block_tables, context_lens, out, scale * math.log2(math.e),
        *q_latent.stride()[:2], *q_rope.stride()[:2], *latent_pool.stride()[:2], block_tables.stride(0),
        *out.stride()[:2],
        H=H, DC=Dc, DR=Dr, PAGE=P, BLOCK_H=16, BLOCK_N=64,
        BLOCK_C=max(16, triton.next_power_of_2(Dc)), BLOCK_R=max(16, triton.next_power_of_2(Dr)),
    )  # fmt: skip
    return out


# %% test="latent_decode" points=3
# needs Triton
latent_decode = check("11.mla", latent_decode)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Your kernel of 10.4, with one K/V head. The score has two `tl.dot`, the sum has one.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Tiles of indices: `h[:, None]`, `c[None, :]` for the latent, `r[None, :]` for the rope key, which starts at `at + DC`. Then
# `tl.dot(q_latent, tl.trans(latent)) + tl.dot(q_rope, tl.trans(rope))`. `weights.to(latent.dtype)` times `latent` is the sum.
#
# </details>
# <details><summary>Hint 3: "each number is loaded once" fails</summary>
#
# Keep the tile `latent` and use it in both products. Its lanes from DC on must be off, or the rope key is loaded twice.
#
# </details>
#
# ## More heads than a tile
#
# DeepSeek-V2 has 128 heads. Their results, 128 by 512 numbers in float32, would take 256 KiB: all registers of a processor. So heads come
# in tiles too. Each tile is a program, and each loads the latents again.
#
# ## Exercise 11.4 - heads and parts
#
# Difficulty 4/5 · importance 5/5 · 20 minutes · about 34 lines, most of them from 11.3
#
# The whole kernel: program (i, row, split) serves heads `i * BLOCK_H` onwards, for one part of the context.
#
# - Any number of heads: 1, 20, 33. Padded rows are neither loaded nor stored, and their log-sum-exps are not stored.
# - Parts are whole tiles: `tl.cdiv(tl.cdiv(length, BLOCK_N), NUM_SPLITS) * BLOCK_N` tokens each. Some may be empty.
# - All share the work: no program loads more than its part. The check watches each, runs many shapes, and takes a while.
# - Store results and log-sum-exps as in 11.1. Your `combine` does the rest.

# %% [markdown] lang="zh" en="71ec1bdb"
# <details><summary>提示 1：从哪里入手</summary>
#
# 从你在 10.4 里写的 kernel 改起，只有一个 K/V 头。算分数用两个 `tl.dot`，求和用一个。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先准备下标的 tile：`h[:, None]`；潜在向量用 `c[None, :]`；rope 键用 `r[None, :]`，从 `at + DC` 开始。然后算 `tl.dot(q_latent, tl.trans(latent)) + tl.dot(q_rope, tl.trans(rope))`。`weights.to(latent.dtype)` 乘以 `latent` 就是加权和。
#
# </details>
# <details><summary>提示 3：“each number is loaded once”这一项不通过</summary>
#
# 留住 `latent` 这个 tile，两次乘法都用它。加载它时，从 DC 开始的通道必须关闭，否则 rope 键会加载两次。
#
# </details>
#
# ## 一个 tile 装不下的头
#
# DeepSeek-V2 有 128 个头。它们的结果是 128 乘 512 个 float32，要占 256 KiB，正好是一个处理器的全部寄存器。所以头也要分成几个 tile。一个头分块就是一个 program，各自都要把潜在向量再加载一遍。
#
# ## 练习 11.4 - 头和段
#
# 难度 4/5 · 重要性 5/5 · 20 分钟 · 大约 34 行，大部分来自 11.3
#
# 完整的 kernel：program (i, row, split) 负责从 `i * BLOCK_H` 开始的头，只看上下文的一段。
#
# - 头数任意，例如 1、20、33。填充（padding）的行既不加载也不写回，它们的 log-sum-exp 也不写回。
# - 每一段由整数个 tile 组成，也就是 `tl.cdiv(tl.cdiv(length, BLOCK_N), NUM_SPLITS) * BLOCK_N` 个 token。有的段可能是空的。
# - 各个 program 分担工作：谁加载的都不能超过自己那一段。检查会逐个盯着，还要跑很多种形状，所以要等一会儿。
# - 结果和 log-sum-exp 的存法和 11.1 一样。剩下的交给你的 `combine`。


# %% exercise="mla_decode"
# needs Triton
@triton.jit
def split_kernel(
    ql_ptr, qr_ptr, pool_ptr, table_ptr, length_ptr, part_ptr, lse_ptr, scale_log2,
    ql_stride_b, ql_stride_h, qr_stride_b, qr_stride_h, stride_n, stride_p, table_stride,
    part_stride_s, part_stride_b, part_stride_h, lse_stride_s, lse_stride_b,
    H: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr, PAGE: tl.constexpr, NUM_SPLITS: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Store one part of a tile of heads of one sequence, and its log-sum-exps."""
    ### BEGIN SOLUTION
    first, row, split = tl.program_id(0) * BLOCK_H, tl.program_id(1), tl.program_id(2)
    h = (first + tl.arange(0, BLOCK_H))[:, None]
    c, r = tl.arange(0, BLOCK_C)[None, :], tl.arange(0, BLOCK_R)[None, :]
    heads = (h < H) & (c < DC)
    q_latent = tl.load(ql_ptr + row * ql_stride_b + h * ql_stride_h + c, mask=heads, other=0.0)
    q_rope = tl.load(qr_ptr + row * qr_stride_b + h * qr_stride_h + r, mask=(h < H) & (r < DR), other=0.0)
    length = tl.load(length_ptr + row)
    tokens = tl.cdiv(tl.cdiv(length, BLOCK_N), NUM_SPLITS) * BLOCK_N
    begin = split * tokens
    end = tl.minimum(begin + tokens, length)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_C], tl.float32)
    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < end
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = (page * stride_n + n % PAGE * stride_p)[:, None]
        latent = tl.load(pool_ptr + at + c, mask=live[:, None] & (c < DC), other=0.0)
        rope = tl.load(pool_ptr + at + DC + r, mask=live[:, None] & (r < DR), other=0.0)
        s = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")
        s += tl.dot(q_rope, tl.trans(rope), input_precision="ieee")
        s = tl.where(live[None, :], s * scale_log2, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp2(top - new_top)
        weights = tl.exp2(s - new_top[:, None])
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(latent.dtype), latent, input_precision="ieee")
        top = new_top
    some = tl.where(total == 0.0, 1.0, total)
    part_at = part_ptr + split * part_stride_s + row * part_stride_b
    tl.store(part_at + h * part_stride_h + c, out / some[:, None], mask=heads)
    lse_at = lse_ptr + split * lse_stride_s + row * lse_stride_b + first
    tl.store(lse_at + tl.arange(0, BLOCK_H), top + tl.log2(some), mask=first + tl.arange(0, BLOCK_H) < H)
    ### END SOLUTION


def mla_decode(
    q_latent, q_rope, latent_pool, block_tables, context_lens, scale, *, num_splits=4, latent_scale=None
):  # fmt: skip
    """As latent_decode, for any H. The scale of int8 latents is None here."""
    (B, H, Dc), Dr, P = q_latent.shape, q_rope.shape[2], latent_pool.shape[1]
    parts = torch.full((num_splits, B, H, Dc), torch.nan, device=q_latent.device)
    lse = torch.full((num_splits, B, H), torch.nan, device=q_latent.device)
    split_kernel[(triton.cdiv(H, 16), B, num_splits)](
        q_latent, q_rope, latent_pool, block_tables, context_lens, parts, lse, scale * math.log2(math.e),
        *q_latent.stride()[:2], *q_rope.stride()[:2], *latent_pool.stride()[:2], block_tables.stride(0),
        *parts.stride()[:3], *lse.stride()[:2],
        H=H, DC=Dc, DR=Dr, PAGE=P, NUM_SPLITS=num_splits, BLOCK_H=16, BLOCK_N=64,
        BLOCK_C=max(16, triton.next_power_of_2(Dc)), BLOCK_R=max(16, triton.next_power_of_2(Dr)),
    )  # fmt: skip
    return combine(parts, lse).to(q_latent.dtype)


# %% test="mla_decode" points=3
# needs Triton
mla_decode = check("11.heads", mla_decode)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# From 11.3: h starts at `first = tl.program_id(0) * BLOCK_H`. From 11.1: begin, end, and the two stores.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# The loop runs from begin to end with `live = n < end`. Results go to
# `split * part_stride_s + row * part_stride_b + h * part_stride_h + c`. Log-sum-exps go to
# `split * lse_stride_s + row * lse_stride_b`, plus the head, under the mask of the heads.
#
# </details>
# <details><summary>Hint 3: "any number of heads" fails at a store</summary>
#
# `top` has one axis, [BLOCK_H]. So its addresses need one axis as well: `first + tl.arange(0, BLOCK_H)`, and the mask `< H`.
#
# </details>
#
# Which program reads which block? Two contexts, tiles of 64 tokens, blocks of 16. Twenty heads make two tiles, the second with 12 rows of
# padding. Move the tile of heads: what changes in the pool? Then find a part that is empty.

# %% [markdown] lang="zh" en="b4ae00b6"
# <details><summary>提示 1：从哪里入手</summary>
#
# 从 11.3 出发：h 从 `first = tl.program_id(0) * BLOCK_H` 开始。再从 11.1 拿来 begin、end 和两处写回。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 循环从 begin 到 end，`live = n < end`。结果存到 `split * part_stride_s + row * part_stride_b + h * part_stride_h + c`。log-sum-exp 存到 `split * lse_stride_s + row * lse_stride_b` 再加上头的编号，用头的掩码挡住多余的头。
#
# </details>
# <details><summary>提示 3：“any number of heads”这一项在写回时报错</summary>
#
# `top` 只有一个轴，[BLOCK_H]。所以写回它的地址也只能有一个轴：`first + tl.arange(0, BLOCK_H)`，掩码是 `< H`。
#
# </details>
#
# 哪个 program 读哪个块？两个上下文，每个 tile 装 64 个 token，每块 16 个槽位。20 个头分成两个头分块，第二个有 12 行填充。拖动滑块，换一个头分块：池里有什么变化？再找一个空的段。

# %%
panel(pictures.programs, sequence=(0, 0, 1), heads=(1, 0, 1), split=(2, 0, 3), num_splits={4: [1, 2, 3, 4]}, height=4.4)

# %% tags=["claim-which-block"]
picture(pictures.programs, sequence=1, heads=0, split=1, num_splits=4, height=4.4)

# %% [markdown] lang="en"
# Tiles of heads read the same blocks, parts read different ones. So parts cost no bytes of the cache, and tiles of heads do: each latent
# is asked for ceil(H / BLOCK_H) times. Formula, counter and picture must agree. For comparison, the engine's GQA kernel, given the
# same pool as K and as V.

# %% [markdown] lang="zh" en="d579c29e"
# 不同的头分块读同样的块，不同的段读不同的块。所以多切几段，不会从缓存里多读字节；多一个头分块，却会多读：每个潜在向量要请求 ceil(H / BLOCK_H) 次。公式、计数器和图必须一致。再拿引擎的 GQA kernel 来对比：把同一个池既当作 K，又当作 V 交给它。


# %% tags=["claim-three-ways"]
# needs Triton
def as_k_and_v(q_latent, q_rope, pool, tables, lengths, scale):
    """Lesson 10's way: one K/V head, and what was summed of the rope key is thrown away."""
    from mini_engine.kernels import paged_gqa_decode

    q, pool = torch.cat((q_latent, q_rope), -1), pool[:, :, None]
    return paged_gqa_decode(q, pool, pool, tables, lengths, scale)[..., : q_latent.shape[2]]


case = Latents(pictures.LENGTHS, heads=20, latent=16, rope=4, page=16)
by_formula = math.ceil(20 / 16) * sum(case.lengths) * (16 + 4) * 4  # tiles of heads, tokens, numbers, bytes
drawn = picture(pictures.programs, sequence=0, heads=0, split=0, num_splits=4).text
print(f"formula {by_formula:,} B; picture: all {drawn.split('All ')[1]}")
if is_interpreted():
    for num_splits in (1, 4):
        asked = bytes_of_the_pool(mla_decode, case, num_splits=num_splits)
        print(f"counted, {num_splits} {'part' if num_splits == 1 else 'parts'}: {asked:,} B")
        assert asked == by_formula
    twice = bytes_of_the_pool(as_k_and_v, case)
    print(f"as K and V: {twice:,} B, {twice / by_formula:.2f} times")
    same = np.abs(as_k_and_v(*case.tensors(), case.scale).double().cpu().numpy() - case.expected()).max() < 1e-5
    print("same result:", bool(same))
else:
    print("counted in the interpreter only: start Jupyter with TRITON_INTERPRET=1")

# %% [markdown] lang="en"
# So MLA decode *is* attention with one wide K/V head, as people say. A kernel that does not know it loads each row twice, as here.
# Without the rope key in the value it is 17/9 times.
#
# ## How intense is it?
#
# Count for one token in the cache. Each head multiplies and adds d_c + d_r numbers for its score, and d_c for its sum. The bytes are
# those of one row, for all heads together:
#
# $$\frac{2\, n_h (d_c + d_r) + 2\, n_h d_c}{2\,(d_c + d_r)} = n_h\, \frac{2 d_c + d_r}{d_c + d_r} = \frac{17}{9}\, n_h \approx 1.889\, n_h$$
#
# Not 2 n_h, which one reads at times: the rope key is in the score and not in the sum. With more query tokens in a step, each does its
# work on the same bytes. Models with multi-token prediction guess the next token and check it together with this one: s_q = 2.

# %% [markdown] lang="zh" en="119230f8"
# 所以，正如人们所说，MLA 解码**就是**只有一个宽 K/V 头的注意力。但如果 kernel 不知道 K 和 V 是同一份，每一行就要加载两次，就像这里；就算加载值时跳过 rope 键，也要 17/9 次。
#
# ## 计算强度有多大
#
# 只看缓存里的一个 token。每个头为分数乘加 d_c + d_r 个数，为加权和乘加 d_c 个数。字节数就是一行的大小，所有头合起来只读这一行：
#
# $$\frac{2\, n_h (d_c + d_r) + 2\, n_h d_c}{2\,(d_c + d_r)} = n_h\, \frac{2 d_c + d_r}{d_c + d_r} = \frac{17}{9}\, n_h \approx 1.889\, n_h$$
#
# 有时会看到 2 n_h，那不准确：rope 键参与算分数，但不参与加权和。如果一步里有几个查询 token，字节还是那些，计算却各做各的。做多 token 预测（multi-token prediction）的模型会先猜出下一个 token，再和当前这个一起检验：s_q = 2。

# %% tags=["claim-intensity"]
ridge = ridge_point(gpu.bf16_flops, gpu.memory_bandwidth)
print(f"ridge of an H100: {float(ridge):.1f} FLOP/B")
print("heads  query tokens            FLOP/B  bound")
for heads, s_q in ((1, 1), (16, 1), (128, 1), (128, 2)):
    at = mla_decode_intensity(heads, 512, 64, s_q=s_q)
    bound = "compute" if at >= ridge else "memory"
    print(f"{heads:>5}{s_q:>14}  {at!s:>6} = {float(at):7.3f}  {bound}")
at = mla_decode_intensity(128, 512, 64, S=4096)
print(f"128 heads, reading q and writing the result counted, 4,096 tokens: {float(at):.1f} FLOP/B")

# %% [markdown] lang="en"
# "MLA decode is compute bound" is a common line. For 128 heads and one query token an H100's data sheet says no, if only just. With
# two it says yes.
#
# ## Exercise 11.5 - where it crosses
#
# Difficulty 2/5 · importance 4/5 · 10 minutes · about 2 lines
#
# Write `heads_at_ridge(d_c, d_r, ridge, s_q)`: the smallest number of heads whose intensity is at least `ridge`.
#
# - Numbers have 2 bytes, contexts are long: the formula above, times `s_q`.
# - Return an `int`. `ridge` is a `Fraction`: stay exact, `Fraction / int` is.
#
# Small case: d_c = d_r = 4 brings 12/8 = 1.5 a head. A ridge of 6 takes 4 heads, a ridge of 7 takes 5.

# %% [markdown] lang="zh" en="cf3ee4a1"
# “MLA 解码是计算受限的”，这话很常见。128 个头、一个查询 token 时，按 H100 的数据手册来算，它不是，只是差得不多。有两个查询 token 时，才是。
#
# ## 练习 11.5 - 从哪里越过脊点
#
# 难度 2/5 · 重要性 4/5 · 10 分钟 · 大约 2 行
#
# 写出 `heads_at_ridge(d_c, d_r, ridge, s_q)`：要让计算强度不低于 `ridge`，最少需要几个头。
#
# - 每个数 2 字节，上下文很长：就用上面的公式，再乘以 `s_q`。
# - 返回 `int`。`ridge` 是 `Fraction`：保持精确，`Fraction / int` 就是精确的。
#
# 小例子：d_c = d_r = 4 时，每个头贡献 12/8 = 1.5。脊点（ridge）为 6 时要 4 个头，为 7 时要 5 个头。


# %% exercise="heads_at_ridge"
def heads_at_ridge(d_c, d_r, ridge, s_q=1):
    """The smallest number of heads at which MLA decode reaches `ridge` FLOP/B."""
    ### BEGIN SOLUTION
    return math.ceil(ridge * (d_c + d_r) / (s_q * (2 * d_c + d_r)))
    ### END SOLUTION


# %% test="heads_at_ridge" points=1
heads_at_ridge = check("11.intensity", heads_at_ridge)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The intensity is a constant times the number of heads. Solve for the heads.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# One head brings s_q (2 d_c + d_r) / (d_c + d_r). Divide the ridge by that, and round up with `math.ceil`.
#
# </details>
# <details><summary>Hint 3: "met exactly" fails</summary>
#
# A float came in. Multiply `ridge` by integers first, and divide by an integer last.
#
# </details>

# %% [markdown] lang="zh" en="bf59246e"
# <details><summary>提示 1：从哪里入手</summary>
#
# 计算强度是一个常数乘以头数。反过来解出头数。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 一个头贡献 s_q (2 d_c + d_r) / (d_c + d_r)。用 ridge 除以它，再用 `math.ceil` 向上取整。
#
# </details>
# <details><summary>提示 3：“met exactly”这一项不通过</summary>
#
# 混进了浮点数。先用整数去乘 `ridge`，最后再除以一个整数。
#
# </details>

# %% tags=["claim-crossing"]
for name in ("h100-sxm", "h200-sxm", "a100-80gb-sxm"):
    card = get_gpu(name)
    its = ridge_point(card.bf16_flops, card.memory_bandwidth)
    one, two = (heads_at_ridge(512, 64, its, s_q) for s_q in (1, 2))
    print(f"{card.name:<16} ridge {float(its):5.1f} FLOP/B: from {one} heads on, with 2 query tokens from {two}")
throttled = ridge_point(865e12, gpu.memory_bandwidth)
print(f"FlashMLA's: 865 TFLOP/s over 3.35 TB/s is {float(throttled):.1f}: from {heads_at_ridge(512, 64, throttled)}")

# %% [markdown] lang="en"
# The last row is a counterpoint. FlashMLA is DeepSeek's own kernel. Its authors call decode compute bound where heads times query tokens
# are 128 or more. They take 2 FLOPs a byte for each head, and an H800 that throttles to 865 TFLOP/s. With the exact factor it takes a few
# heads more. They report up to 3,000 GB/s where bytes are the bound, and 660 TFLOP/s where work is. So near the ridge, name your count and
# your GPU before you name the bound.
#
# ## Fewer heads on a GPU
#
# 128 heads bring 241.8 FLOP/B together. Tensor parallelism gives each GPU some of the heads. A latent belongs to all heads, so each GPU
# needs all latents.

# %% [markdown] lang="zh" en="dc90737e"
# 最后一行是另一种意见。FlashMLA 是 DeepSeek 自己的 kernel。它的作者说，头数乘以查询 token 数达到 128，解码就是计算受限的。他们按每个头每字节 2 FLOP 来算，用的 H800 会降频到 865 TFLOP/s。换成精确的系数，还要再多几个头。他们报告：访存受限时最高 3,000 GB/s，计算受限时最高 660 TFLOP/s。所以在脊点附近，先说清怎么算、用什么 GPU，再说受限于什么。
#
# ## 每块 GPU 上的头变少
#
# 张量并行（tensor parallelism）让每块 GPU 只负责一部分头。而一个潜在向量属于所有的头，所以每块 GPU 都要有全部的潜在向量。
#
# 猜一猜：128 个头的计算强度是 241.8 FLOP/B。用张量并行把这些头分给 8 块 GPU，每块 GPU 的计算强度是多少？

# %%
predict("11.gpus", value=None)

# %% tags=["claim-tensor-parallel"]
panel(
    pictures.heads,
    num_heads={128: [8, 16, 32, 64, 128]},
    query_tokens=(1, 1, 4),
    gpus={8: [1, 2, 4, 8]},
    gpu=["h100-sxm", "h200-sxm", "a100-80gb-sxm"],
)

# %% tags=["claim-roofline"]
points = [("16 heads, or 128 on 8 GPUs", 16, 1), ("128 heads", 128, 1), ("128 heads, 2 query tokens", 128, 2)]
named = [(name, float(mla_decode_intensity(heads, 512, 64, s_q=s_q))) for name, heads, s_q in points]
picture(p03_intensity.roofline, points=named)

# %% [markdown] lang="en"
# So a kernel for MLA has two faces. With 16 heads on a GPU it must read fast, as GQA's. With 128 it must compute fast as well. And tiles of
# heads ask for the same latents: that intensity is reached only where the L2 cache serves all but one of them.
#
# ## What becomes of the kernel
#
# Larger tiles of tokens would mean fewer rounds. What stops us? The compiler knows, without a GPU: the engine's own kernel for an H100, as
# it is and with tiles of twice the tokens. Two compilations: this takes some seconds.

# %% [markdown] lang="zh" en="e8975ae1"
# 所以 MLA 的 kernel 有两副面孔。一块 GPU 上 16 个头时，它要读得快，和 GQA 一样；128 个头时，还要算得快。而且各个头分块请求的是同样的潜在向量：只有一次真正读内存、其余都由 L2 缓存接住，才能达到这个强度。
#
# ## kernel 编译成了什么
#
# 每个 tile 多装一些 token，循环的轮数就少一些。那为什么不加大？不用 GPU，编译器就能回答：下面为 H100 编译引擎自己的 kernel，先按原样，再让每个 tile 装两倍的 token。要编译两次，得等几秒。


# %% tags=["claim-compiled", "nbval-ignore-output"]
# needs Triton
def compiled(*options):
    """What the engine's MLA kernel needs on sm_90, 16 heads in bfloat16; and whether the report finds fault."""
    command = [sys.executable, "-m", "mini_engine.kernels.compile_report", "--json", "--only", "mla-bf16-h16"]
    done = subprocess.run([*command, "--targets", "sm_90", *options], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)[0]["needs"]


print(f"{'':<16}{'registers':>10}{'spills':>8}{'stack':>7}{'shared':>9}{'wide loads':>12}{'matrix':>8}{'exit':>6}")
for title, options in (("as launched", ()), ("twice the tokens", ("--spoil", "tiles"))):
    status, needs = compiled(*options)
    row = f"{title:<16}{needs['registers']:>10}{needs['spills']:>8}{needs['stack']:>7}{needs['shared']:>9,}"
    print(f"{row}{needs['wide_loads']:>12}{needs['matrix_instructions']:>8}{status:>6}")
    assert (needs["spills"] > 0) == (status != 0)

# %% [markdown] lang="en"
# A result tile of 16 heads by 512 numbers stays in registers through the whole loop. With more tokens a tile, registers run out and
# **spill** to memory (`spills`, and bytes of `stack` for them), in every round. Results stay right. So only the report sees it, and says so
# with `exit` 1. `matrix` counts instructions for the matrix units, `shared` bytes of shared memory.
#
# ## Your kernel writes text
#
# tiny-mla has 8 heads, latents of 64 and rope keys of 16. Its contexts here fit in one tile, so three of four parts are empty.

# %% [markdown] lang="zh" en="af3e0261"
# 结果的 tile 是 16 个头乘 512 个数，整个循环里都留在寄存器中。每个 tile 的 token 一多，寄存器不够用，就会**溢出**（spill）到内存（`spills`，以及为此占用的 `stack` 字节），每一轮都如此。结果照样正确，所以只有这份报告能看出来：这时 `exit` 是 1。`matrix` 是矩阵单元的指令数，`shared` 是共享内存的字节数。
#
# ## 你的 kernel 写出文本
#
# tiny-mla 有 8 个头，潜在向量有 64 个数，rope 键有 16 个数。这里的上下文放得进一个 tile，所以四段里有三段是空的。

# %% tags=["claim-engine"]
# needs Triton
prompts, params = ["The young lady", "Emma was"], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
options = {"block_size": 4, "num_blocks": 24}
mine = LLM("tiny-mla", backend="triton", decode=mla_decode, **options)
texts = [
    [one.outputs[0].text for one in llm.generate(prompts, params, progress=False)]
    for llm in (mine, LLM("tiny-mla", backend="torch", **options))
]
for prompt, text in zip(prompts, texts[0]):
    print(f"{prompt}{text}")
print("as with torch:", texts[0] == texts[1])
assert texts[0] == texts[1]

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# Two parts have equal log-sum-exps. Do they have equally many tokens?
#
# <details><summary>Answer</summary>
#
# Not if their scores differ: a few large scores sum up to as much as many small ones.
#
# </details>
#
# And three numbers:

# %% [markdown] lang="zh" en="a58e97df"
# ## 自测
#
# 两段的 log-sum-exp 相等。它们的 token 一样多吗？
#
# <details><summary>答案</summary>
#
# 分数不同的话，就不一定：几个大分数的幂加起来，可以和许多小分数的一样大。
#
# </details>
#
# 再猜三个数。第一问：两段的 log-sum-exp 是 3 和 5，以 2 为底。第一段的权重是多少？第二问：DeepSeek-V2 有 128 个头，每个 program 负责 32 个头。每个潜在向量会被请求几次？第三问：一个有 64 个头的模型跑在一块 H100 上，脊点是 295.2（单位是 FLOP/B）。一步里至少要有几个查询 token，它的解码才是计算受限的？

# %% tags=["self-check"]
predict("11.weight", value=None)
predict("11.rereads", value=None)
predict("11.bound", value=None)

# %% [markdown] lang="en" tags=["in-production", "limits", "question"]
# ## In production
#
# Names as of 2026, in the main branches.
#
# | here | vLLM | SGLang | FlashInfer, FlashMLA |
# |---|---|---|---|
# | `mla_decode` | `triton_decode_attention.py`, `_fwd_grouped_kernel_stage1` | `decode_attention.py`, a kernel of the same name | `BatchMLAPagedAttentionWrapper`, `flash_mla_with_kvcache` |
# | loaded once | `IS_MLA`: `v = tl.trans(k)` | `HAS_MLA`: `v = tl.trans(k)` | FlashMLA: `k_cache` alone |
# | `combine` | `_fwd_kernel_stage2` | `_fwd_kernel_stage2` | `merge_states` |
# | `num_splits` | from the longest context; 1 for the same bits in any batch | `num_kv_splits`, one for each request, or one for all | planned before the launch |
# | log-sum-exp | base e | base e | FlashInfer: base 2 |
#
# > **What this does not show**
# >
# > - Speed. The interpreter says nothing about it, and no time of a GPU stands here.
# > - Whether the L2 cache serves what tiles of heads ask for again.
# > - Prefill, which expands, and int8 latents. The engine has both.
# > - Two query tokens in one launch. The kernel here has one.
#
# ## Questions that people ask
#
# <details><summary>Do results depend on the batch then?</summary>
#
# In their last digits, yes, where the number of parts does. Sums in another order round differently. Who needs the same bits in any batch
# fixes the number of parts, at the price of idle processors.
#
# </details>
# <details><summary>And with a sliding window?</summary>
#
# Cut what the window leaves, not the whole context. Else most parts lie before the window, and their programs have nothing to do. The
# engine's GQA kernel does so.
#
# </details>
# <details><summary>Why not one program for all 128 heads?</summary>
#
# Its results alone would fill the registers. A tile of FlashMLA has 64 heads: 64 by 512 results take half of the registers. Two groups of
# threads share them by hand, half of the columns each. Triton does not go that far.
#
# </details>

# %% [markdown] lang="zh" en="e40c2295"
# ## 在生产系统中
#
# 名称以 2026 年的 main 分支为准。
#
# | 本课 | vLLM | SGLang | FlashInfer、FlashMLA |
# |---|---|---|---|
# | `mla_decode` | `triton_decode_attention.py`，`_fwd_grouped_kernel_stage1` | `decode_attention.py`，内核同名 | `BatchMLAPagedAttentionWrapper`，`flash_mla_with_kvcache` |
# | 加载一次 | `IS_MLA`：`v = tl.trans(k)` | `HAS_MLA`：`v = tl.trans(k)` | FlashMLA：只有 `k_cache` |
# | `combine` | `_fwd_kernel_stage2` | `_fwd_kernel_stage2` | `merge_states` |
# | `num_splits` | 由最长的上下文决定；要求结果逐位不随 batch 变化时，固定为 1 | `num_kv_splits`，每个请求一个，或者共用一个 | 启动之前先规划 |
# | log-sum-exp | 以 e 为底 | 以 e 为底 | FlashInfer：以 2 为底 |
#
# > **这一课没有说明的事**
# >
# > - 速度。解释器说明不了速度，这里也没有任何 GPU 上的时间。
# > - 各个头分块重复请求的内容，L2 缓存能不能接住。
# > - 预填充（要把潜在向量展开成 K 和 V），以及 int8 的潜在向量。引擎里两者都有。
# > - 一次启动处理两个查询 token。这里的 kernel 只处理一个。
#
# ## 常见问题
#
# <details><summary>这样的话，结果会随 batch 变化吗？</summary>
#
# 如果段数随 batch 变化，最后几位数字会变：求和顺序不同，舍入就不同。要想结果在任何 batch 里逐位相同，就把段数固定下来，代价是有处理器闲着。
#
# </details>
# <details><summary>有滑动窗口怎么办？</summary>
#
# 只切窗口内的部分，引擎的 GQA kernel 就是这样做的。不要切整个上下文，否则大多数段都在窗口之前，它们的 program 无事可做。
#
# </details>
# <details><summary>为什么不让一个 program 负责全部 128 个头？</summary>
#
# 光是结果就会占满寄存器。FlashMLA 的一个 tile 是 64 个头，它的 64 乘 512 个结果占去一半寄存器，由手工安排的两组线程分担，各管一半的列。Triton 做不到这么细。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A part leaves its result and its log-sum-exp. Weighed by 2 to that power, parts make the whole, whatever their number.
# - Over latents, the tile that was the key is the value: loaded once, used twice. Tiles of heads ask for it again.
# - A head brings 17/9 FLOP per byte. With 128 heads and one query token that is just below an H100's ridge.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | split-KV | KV 切分 | "flash-decoding" | several programs share the context of one sequence |
# | log-sum-exp | 指数和的对数 | "LSE" | logarithm of the sum of a part's powers |
# | combine | 合并 | "reduce", "stage 2" | weighs parts by their log-sum-exps |
# | head tile | 头分块 | "BLOCK_H" | query heads of one program |
# | absorbed form | 吸收形式 | "MQA mode" | attention over latents as they are |
# | multi-token prediction | 多 token 预测 | "MTP" | guesses tokens ahead, and checks them in one step |
#
# **Open exercises.** *Easy:* count what `combine` moves. *Medium:* give `mla_decode` a window. *Research:* take two query tokens a sequence in one
# launch, each with its own causal end, and count bytes again.
#
# **Back:** [10 · Triton GQA decode kernel](lessons/10_triton_gqa.ipynb) · **Next:** [12 · Continuous batching](lessons/12_continuous_batching.ipynb)

# %% [markdown] lang="zh" en="e41f417a"
# ## 三句话总结
#
# - 每一段留下结果和 log-sum-exp。以 2 的 log-sum-exp 次方为权重，各段就合成整体，不管切成几段。
# - 潜在向量的 tile 既是键，也是值：加载一次，用两次。头分块每多一个，就要再请求它一次。
# - 每个头贡献 17/9 FLOP/B。128 个头、一个查询 token，略低于 H100 的脊点。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | KV 切分 | split-KV | “flash-decoding” | 几个 program 分担一个序列的上下文 |
# | 指数和的对数 | log-sum-exp | “LSE” | 一段里各个幂之和的对数 |
# | 合并 | combine | “reduce”、“stage 2” | 按 log-sum-exp 给各段加权 |
# | 头分块 | head tile | “BLOCK_H” | 一个 program 负责的查询头 |
# | 吸收形式 | absorbed form | “MQA mode” | 直接在潜在向量上做注意力 |
# | 多 token 预测 | multi-token prediction | “MTP” | 提前猜出几个 token，在一步里检验 |
#
# **开放练习。** *简单*：数一数 `combine` 搬动多少字节。*中等*：给 `mla_decode` 加上窗口。*研究*：让一次启动处理每个序列的两个查询 token，各有自己的因果边界，再数一遍字节。
#
# **上一课：** [10 · Triton GQA 解码 kernel](lessons/10_triton_gqa.ipynb) · **下一课：** [12 · 连续批处理](lessons/12_continuous_batching.ipynb)
