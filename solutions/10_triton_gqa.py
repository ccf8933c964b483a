# %% [markdown] lang="en" tags=["goals"]
# # 10 · Triton GQA decode kernel
#
# **Read every byte once.**
#
# 120 to 180 minutes · Triton, no GPU needed · after lessons 03, 04 and 07
#
# After this lesson you can
#
# - write a kernel of your own: programs, tiles, masks and strides;
# - follow a block table inside a kernel, and let the engine write text with it;
# - say how many bytes a decode kernel must load, and count those that it does.
#
# The next cell decides where kernels run: compiled on a GPU, else in Triton's interpreter on the CPU. It comes first, since Triton
# cannot change its mind later.

# %% [markdown] lang="zh" en="67ea101f"
# # 10 · Triton GQA 解码 kernel
#
# **每个字节只读一次。**
#
# 120 到 180 分钟 · Triton，不需要 GPU · 先学第 03、04、07 课
#
# 学完这一课，你能够：
#
# - 自己写 kernel，用好 program、tile（分块）、掩码和步长；
# - 在 kernel 里顺着块表找数据，并让引擎用它写出文本；
# - 说清一个解码 kernel 至少要读多少字节，并数出它实际读了多少。
#
# 下一个单元格决定 kernel 在哪里运行：有 GPU 就编译，没有就用 Triton 的解释器在 CPU 上跑。它必须放在最前面：一旦定下来，Triton 就不能再换了。

# %% tags=["nbval-ignore-output"]
from mini_engine.course.own_kernels import start_kernels

triton, tl = start_kernels()

# %%
import re
import textwrap
from collections import Counter

import numpy as np
import torch

from mini_engine import LLM, SamplingParams, get_gpu, get_model
from mini_engine.attention import gather
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.kernel_cases import Cache
from mini_engine.course.kernel_compile import compiled, launches_kept
from mini_engine.course.panels import p10_triton_gqa as pictures
from mini_engine.geometry import kv_bytes_per_token
from mini_engine.kernels import is_interpreted, kernel_device
from mini_engine.kernels.traffic import traffic
from mini_engine.roofline import attn_decode_intensity, ridge_point

device = kernel_device()

# %% [markdown] lang="en"
# ## The pain
#
# [Lesson 07](lessons/07_block_tables.ipynb) gave each request scattered blocks. A library's attention wants keys in one run. So
# an engine without a kernel of its own gathers them first, in every layer, for every token.

# %% [markdown] lang="zh" en="fb7e517f"
# ## 痛点
#
# [第 07 课](lessons/07_block_tables.ipynb)给每个请求分的是零散的块，而库里现成的注意力要求 K 和 V 连成一片。所以，引擎要是没有自己的 kernel，每生成一个 token，每一层都得先把它们收集到一起。
#
# 先猜一猜：一段上下文的 K 和 V 一共 X 字节。第一次调用把它们从块里复制出来，第二次调用对副本做注意力。读和写都算上，两次调用搬动的字节是 X 的多少倍？

# %%
predict("10.moved", value=None)

# %% tags=["claim-pain"]
rng = np.random.default_rng(10)
pool_of_k, pool_of_v = rng.normal(size=(2, 17, 4, 2, 32)).astype(np.float32)  # 17 blocks of 4, 2 heads of 32
least = written = 0
for table, length in zip(pictures.tables(), pictures.LENGTHS):
    for pool in (pool_of_k, pool_of_v):
        copy = gather(pool, np.array(table), length)
        least += length * pool[0, 0].nbytes
        written += 0 if np.shares_memory(copy, pool) else copy.nbytes
moved = least + 2 * written  # blocks read, copy written, copy read
print(f"contexts {pictures.LENGTHS}: K and V are {least:,} B, {written:,} B are copied")
print(f"read, written and read again: {moved:,} B = {moved // least} times")
llama, gpu = get_model("llama-3-8b"), get_gpu("h100-sxm")
whole = 32 * 8192 * kv_bytes_per_token(llama)
print(f"Llama-3-8B, 32 requests of 8,192 tokens: K and V are {whole / 1e9:.1f} GB = {whole / 2**30:.0f} GiB")
once = float(whole / gpu.memory_bandwidth)
print(f"least time for them on an H100: {1e3 * once:.1f} ms a token; with a copy {3e3 * once:.1f} ms")

# %% [markdown] lang="en"
# Decode is bound by bytes, and two thirds of these are for nothing. So we write the missing function, in
# [Triton](https://triton-lang.org): Python that becomes a GPU kernel.

# %% [markdown] lang="zh" en="75c97552"
# 解码是访存受限的，而这些字节有三分之二是白搬的。缺的那个函数，我们就自己写，用 [Triton](https://triton-lang.org)：写的是 Python，编译出来是 GPU kernel。

# %% tags=["diagram"]
svg(*pictures.two_ways())

# %% [markdown] lang="en"
# ## Programs, tiles, masks
#
# A kernel is started as a **grid** of **programs**. All run the same code, in any order, and share nothing but memory. What differs
# is `tl.program_id`. A program works on **tiles**: small arrays, of sizes that are powers of 2. A place in a tile is a **lane**.
#
# Ten numbers, programs with tiles of 4. The third program has two lanes too many. Its **mask** says which lanes are on.

# %% [markdown] lang="zh" en="713a23c4"
# ## program、tile、掩码
#
# 启动一个 kernel，就是启动由许多 **program**（程序实例）组成的**网格**（grid）。它们运行同一段代码，先后不定，除了内存什么也不共享，唯一的区别是 `tl.program_id`。program 处理的是 **tile**（分块）：每条边的长度都是 2 的幂的小数组。tile 里的一个位置叫一个**通道**（lane）。
#
# 现在有十个数，每个 program 的 tile 有 4 个通道，于是第三个 program 多出两个通道。哪些通道打开，由**掩码**（mask）决定。


# %% tags=["claim-program"]
# needs Triton
@triton.jit
def who_kernel(out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    at = i * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, i, mask=at < n)


who = torch.full((12,), -1, dtype=torch.int32, device=device)
who_kernel[(3,)](who, 10, BLOCK=4)
print("who wrote:", who.tolist())

# %% [markdown] lang="en"
# `out_ptr` is an address. `out_ptr + at` is a tile of addresses, counted in numbers and not in bytes. `BLOCK: tl.constexpr` is known
# when the kernel is compiled: a tile's size must be.
#
# Most kernels load, compute, and store. This one squares the numbers of a matrix. Its grid has two axes, (column tile, row):
# `program_id(0)` is the first, `program_id(1)` the second.

# %% [markdown] lang="zh" en="f8910f80"
# `out_ptr` 是一个地址。`out_ptr + at` 是装满地址的 tile：偏移按元素个数计，不按字节计。`BLOCK: tl.constexpr` 是编译时就知道的常量，tile 的大小必须是这样的常量。
#
# 大多数 kernel 都是三步：加载、计算、写回。下面这个给矩阵里的每个数求平方。它的网格有两个轴，依次是列方向的 tile 和行：`program_id(0)` 是第一个，`program_id(1)` 是第二个。


# %% tags=["claim-load"]
# needs Triton
@triton.jit
def square_kernel(x_ptr, length_ptr, out_ptr, x_stride, out_stride, BLOCK: tl.constexpr):
    tile, row = tl.program_id(0), tl.program_id(1)
    length = tl.load(length_ptr + row)  # one number
    at = tile * BLOCK + tl.arange(0, BLOCK)
    on = (at < length) & (at >= 0)  # masks are joined with &
    x = tl.load(x_ptr + row * x_stride + at, mask=on, other=0.0)  # a tile of numbers
    x = x.to(tl.float32)  # float16 would end at 65,504
    tl.store(out_ptr + row * out_stride + at, x * x, mask=on)


x = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [100, 200, 300, 400, 500, 600, 700]], dtype=torch.float16, device=device)
squares = torch.zeros((2, 7), device=device)
square_kernel[(2, 2)](x, torch.tensor([6, 3], device=device), squares, x.stride(0), squares.stride(0), BLOCK=4)
print(squares.int().tolist())

# %% [markdown] lang="en"
# - A lane that is off touches nothing. A load gives it `other`. **Without `other` it holds anything** on a GPU, 0 in the
#   interpreter, and NaN in the checks of this lesson.
# - Nothing checks an address. A wrong one reads somebody else's memory. The checks do look, and they count as wrong what is read for
#   nothing.
# - Allowed are numbers, tiles, `for ... in range(...)`, `while`, and `if` on one number. There are no lists, no NumPy, no `x_ptr[row]` and no
#   `@`. `print` works in the interpreter.
# - **A variable keeps its type and shape** from turn to turn of a loop. What becomes a tile starts as one. The checks compile your
#   kernel for an H100, which works without one.
#
# | you need | write |
# |---|---|
# | positions 0 to 15 | `tl.arange(0, 16)` |
# | a tile of zeros, of another number | `tl.zeros([16, 32], tl.float32)`, `tl.full([16], float("-inf"), tl.float32)` |
# | a row or a column of a tile | `d[None, :]`, `n[:, None]`; they broadcast as in NumPy |
# | fold a tile along an axis | `tl.max(x, 0)`, `tl.sum(x, 1)` |
# | number by number | `tl.maximum(a, b)`, `tl.exp(x)`, `tl.where(mask, a, b)`, `x.to(tl.float32)` |
# | matrix product, transpose | `tl.dot(a, b)`, `tl.trans(k)` |
#
# ## Exercise 10.1 - the largest and the sum
#
# Difficulty 2/5 · importance 5/5 · 15 minutes · about 10 lines
#
# Write the kernel. Program `row` finds the largest and the sum of the first `length` numbers of its row.
#
# - Row r starts at `x_ptr + r * x_stride`. A row may be longer than a tile: loop over its tiles.
# - What lies behind `length` is not yours.
# - Numbers may be below 0. An empty row gives `float("-inf")` and 0.
#
# Small case: a row of 5 numbers is one tile of 16 with 11 lanes off. What should these count as in a sum? In a maximum?

# %% [markdown] lang="zh" en="db6581af"
# - 关闭的通道不碰内存。加载时，它的值就是 `other`。**不写 `other`，里面是什么就不一定了**：在 GPU 上是任意值，在解释器里是 0，在这一课的检查里是 NaN。
# - 平时没人替你检查地址。地址错了，读到的就是别人的内存。这一课的检查会盯着地址；读了却用不上的，也算错。
# - 能用的有：单个的数、tile、`for ... in range(...)`、`while`，以及条件为单个数的 `if`。不能用列表、NumPy、`x_ptr[row]` 和 `@`。`print` 在解释器里能用。
# - **在循环里，变量的类型和形状不能变。** 后面要变成 tile 的，一开始就得是 tile。检查会为 H100 编译你的 kernel，手边没有 H100 也行。
#
# | 你需要 | 写法 |
# |---|---|
# | 位置 0 到 15 | `tl.arange(0, 16)` |
# | 填满 0 的 tile、填满别的数的 tile | `tl.zeros([16, 32], tl.float32)`、`tl.full([16], float("-inf"), tl.float32)` |
# | 把 tile 变成一行或一列 | `d[None, :]`、`n[:, None]`；广播规则和 NumPy 一样 |
# | 沿一个轴归约 | `tl.max(x, 0)`、`tl.sum(x, 1)` |
# | 逐个数计算 | `tl.maximum(a, b)`、`tl.exp(x)`、`tl.where(mask, a, b)`、`x.to(tl.float32)` |
# | 矩阵乘法、转置 | `tl.dot(a, b)`、`tl.trans(k)` |
#
# ## 练习 10.1 - 最大值与和
#
# 难度 2/5 · 重要性 5/5 · 15 分钟 · 大约 10 行
#
# 写出这个 kernel：program `row` 求自己那一行前 `length` 个数的最大值与和。
#
# - 第 r 行从 `x_ptr + r * x_stride` 开始。一行可能比一个 tile 长：对 tile 做循环。
# - `length` 之后的内容不是你的，不要读。
# - 数可能小于 0。空行的结果是 `float("-inf")` 和 0。
#
# 小例子：一行 5 个数，就是一个 16 通道的 tile，其中 11 个通道关闭。求和时该把它们当作几？求最大值时呢？


# %% exercise="largest_and_sum"
# needs Triton
@triton.jit
def rows_kernel(x_ptr, length_ptr, largest_ptr, sum_ptr, x_stride, BLOCK: tl.constexpr):
    """Store the largest and the sum of a row at largest_ptr + row and sum_ptr + row."""
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    length = tl.load(length_ptr + row)
    largest = float("-inf")
    total = 0.0
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + at, mask=at < length, other=float("-inf"))
        largest = tl.maximum(largest, tl.max(x, 0))
        total += tl.sum(tl.where(at < length, x, 0.0), 0)
    tl.store(largest_ptr + row, largest)
    tl.store(sum_ptr + row, total)
    ### END SOLUTION


def largest_and_sum(x, lengths):
    """x[R, S], lengths[R] -> largest[R], sum[R]."""
    largest, total = torch.full((2, len(x)), torch.nan, device=x.device)
    rows_kernel[(len(x),)](x, lengths, largest, total, x.stride(0), BLOCK=16)
    return largest, total


# %% test="largest_and_sum" points=1
# needs Triton
largest_and_sum = check("10.rows", largest_and_sum)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `square_kernel` has all the loads that you need. `tl.max(x, 0)` folds a tile; `tl.maximum(a, b)` is for two numbers, or two tiles.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `for start in range(0, length, BLOCK)`: positions `at = start + tl.arange(0, BLOCK)`, then a load with `mask=at < length`. Keep
# two numbers from tile to tile, and store both after the loop.
#
# </details>
# <details><summary>Hint 3: "numbers below 0" fails</summary>
#
# Lanes that are off got 0, which is larger. Load them as -inf. For the sum, `tl.where(at < length, x, 0.0)`.
#
# </details>
#
# ## Online softmax, as a kernel does it
#
# Attention needs the largest score and a sum too, but in one pass. [Lesson 07](lessons/07_block_tables.ipynb) did it block by
# block. A kernel does it tile by tile, whatever the block size is. Six tokens, tiles of 4, in NumPy:

# %% [markdown] lang="zh" en="121486b5"
# <details><summary>提示 1：从哪里入手</summary>
#
# 要用到的几种加载，`square_kernel` 里都有。`tl.max(x, 0)` 把一个 tile 归约掉；`tl.maximum(a, b)` 用在两个数或两个 tile 之间。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# `for start in range(0, length, BLOCK)`：位置是 `at = start + tl.arange(0, BLOCK)`，加载时用 `mask=at < length`。把两个数从一个 tile 带到下一个，循环结束后一起写回。
#
# </details>
# <details><summary>提示 3：“numbers below 0”这一项不通过</summary>
#
# 关闭的通道得到了 0，比这些数都大。加载时让它们得到 -inf。求和时用 `tl.where(at < length, x, 0.0)`。
#
# </details>
#
# ## kernel 里的在线 softmax
#
# 注意力也要最大的分数，也要和，但数据只能走一遍。[第 07 课](lessons/07_block_tables.ipynb)逐块地做，kernel 则逐个 tile 地做，不管块有多大。六个 token，tile 大小为 4，先用 NumPy 写：


# %% tags=["claim-steps"]
def load(array, at, mask, other):
    """What tl.load does: lanes that are off read nothing and hold `other`."""
    found = np.full(at.shape, other)
    found[mask] = array[at[mask]]
    return found


scores, values = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 4.0]), np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
top, total, out = -np.inf, 0.0, 0.0
for start in range(0, 6, 4):
    n = start + np.arange(4)
    live = n < 6
    s, v = load(scores, n, live, -np.inf), load(values, n, live, 0.0)
    new_top = max(top, s.max())
    shrink, weights = np.exp(top - new_top), np.exp(s - new_top)
    total, out, top = total * shrink + weights.sum(), out * shrink + weights @ v, new_top
    print(f"tokens {n}: scores {s}, maximum {top}")
    print(f"  weights {np.round(weights, 3)}, " + (f"old parts times {shrink:.3f}" if start else "and nothing before"))
    print(f"  sum {total:.4f}, values {out:.3f}")
softmax = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
print(f"in tiles {out / total:.6f}, all at once {softmax @ values:.6f}")

# %% [markdown] lang="en"
# A lane that is off has score -inf, so weight 0. But 0 × NaN is NaN: its **value** must be masked as well. So must its key, which
# would be fetched for nothing.
#
# Here a token's value is one number. In attention it is a row of D. Then `out` is a tile [BLOCK_D], and `weights @ v` becomes
# `tl.sum(weights[:, None] * v, 0)`.
#
# ## Exercise 10.2 - one query
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 18 lines
#
# Write those steps as a kernel: one query `q[D]` over `length` keys and values, one program.
#
# - Token n has its key at `k_ptr + n * k_stride`, and D numbers from there. Its value is at `v_ptr + n * v_stride`: another tensor,
#   another stride.
# - A tile of keys is [BLOCK_N, BLOCK_D]: `n[:, None] * k_stride + d[None, :]`. D may be no power of 2, so lanes can be off on both
#   sides: `(n < length)[:, None] & (d < D)[None, :]`.
# - Scores are `q · k * scale`. Large ones must not overflow.

# %% [markdown] lang="zh" en="e56253e9"
# 关闭的通道分数是 -inf，所以权重是 0。但 0 × NaN 还是 NaN：它的**值**（value）也必须用掩码挡住。它的键（key）也一样，不然就白读了。
#
# 这里每个 token 的值只是一个数。在真正的注意力里，它是一行 D 个数。这时 `out` 是 tile [BLOCK_D]，`weights @ v` 变成 `tl.sum(weights[:, None] * v, 0)`。
#
# ## 练习 10.2 - 一个查询
#
# 难度 3/5 · 重要性 5/5 · 20 分钟 · 大约 18 行
#
# 把这些步骤写成 kernel：一个查询 `q[D]`，对 `length` 个键和值做注意力，只有一个 program。
#
# - token n 的键从 `k_ptr + n * k_stride` 开始，一共 D 个数。它的值从 `v_ptr + n * v_stride` 开始：张量不同，步长也不同。
# - 键的 tile 形状是 [BLOCK_N, BLOCK_D]，地址的偏移是 `n[:, None] * k_stride + d[None, :]`。D 不一定是 2 的幂，所以两个方向都可能有关闭的通道：`(n < length)[:, None] & (d < D)[None, :]`。
# - 分数是 `q · k * scale`。分数再大，也不能上溢（overflow）。


# %% exercise="decode_one"
# needs Triton
@triton.jit
def one_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, k_stride, v_stride,
    D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Store attention of q[D] over length keys and values at out_ptr + d."""
    ### BEGIN SOLUTION
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + d, mask=d < D, other=0.0)
    top = float("-inf")
    total = 0.0
    out = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        tile = (n < length)[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + n[:, None] * k_stride + d[None, :], mask=tile, other=0.0)
        v = tl.load(v_ptr + n[:, None] * v_stride + d[None, :], mask=tile, other=0.0)
        s = tl.sum(q[None, :] * k, 1) * scale
        s = tl.where(n < length, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(s - new_top)
        total = total * shrink + tl.sum(weights, 0)
        out = out * shrink + tl.sum(weights[:, None] * v, 0)
        top = new_top
    tl.store(out_ptr + d, out / total, mask=d < D)
    ### END SOLUTION


def decode_one(q, k, v, scale):
    """q[D], k[S, D], v[S, D] -> [D]."""
    D = len(q)
    out = torch.empty(D, device=q.device)
    one_kernel[(1,)](
        q, k, v, out, len(k), scale, k.stride(0), v.stride(0), D=D, BLOCK_N=64, BLOCK_D=triton.next_power_of_2(D)
    )
    return out


# %% test="decode_one" points=2
# needs Triton
decode_one = check("10.one", decode_one)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The loop of the last cell is nearly the kernel. Begin with `out = tl.zeros([BLOCK_D], tl.float32)`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# The tile's mask is that of both loads, with `other=0.0`. Scores are `tl.sum(q[None, :] * k, 1) * scale`, then -inf where n is behind
# the end. Everything else is as in NumPy.
#
# </details>
# <details><summary>Hint 3: "a partial last tile" fails</summary>
#
# Three things need the mask: the load of k, the load of v, and the scores. A score of 0 is not "no score": its weight is e^0 = 1.
#
# </details>
#
# This is the inner loop of FlashAttention. What does it save? It never writes the scores to memory.

# %% [markdown] lang="zh" en="2062febd"
# <details><summary>提示 1：从哪里入手</summary>
#
# 上一个 NumPy 单元格的循环，差不多就是这个 kernel。从 `out = tl.zeros([BLOCK_D], tl.float32)` 开始。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# k 和 v 的加载用同一个 tile 掩码，都写上 `other=0.0`。分数是 `tl.sum(q[None, :] * k, 1) * scale`，n 超出末尾的地方换成 -inf。其余和 NumPy 里一样。
#
# </details>
# <details><summary>提示 3：“a partial last tile”这一项不通过</summary>
#
# 有三处要用掩码：加载 k、加载 v，还有分数。分数为 0 不等于“没有分数”：它的权重是 e^0 = 1。
#
# </details>
#
# 这就是 FlashAttention 的内层循环。它省下了什么？分数从不写进内存。

# %% tags=["claim-prefill-decode"]
S, D, NUMBER = 8192, 128, 2  # tokens, size of a head, bytes of a number
kv_of_head = (S * D + S * D) * NUMBER
print("phase    queries  bytes of scores  of K and V  scores' share")
for phase, queries in (("prefill", S), ("decode", 1)):
    of_scores = queries * S * NUMBER
    share = of_scores / (of_scores + kv_of_head)
    print(f"{phase:<7}{queries:>9,}{of_scores:>17,}{kv_of_head:>12,}{share:>15.1%}")

# %% [markdown] lang="en"
# In prefill the scores are nearly all of a head's bytes, and FlashAttention was made for it. In decode they are next to nothing. People
# say "decode is fast with FlashAttention". What helps there is fewer bytes of K and V: GQA, MLA, quantization, and to read each of them once.
#
# ## Through the block table
#
# The pool is [N blocks, P slots, K heads, D], one long row of memory. Token n lies in block `table[n // P]`, slot `n % P`:
#
# $$\text{address} = \text{table}[n // P] \times \text{stride}_n + (n \,\%\, P) \times \text{stride}_p + \text{head} \times \text{stride}_k + d$$
#
# A load takes any tile of addresses. So each lane finds its own block: a **strided gather**, with no copy. A tile of 16 tokens may
# lie in four blocks of 4, wherever they are.

# %% [markdown] lang="zh" en="b3c1985f"
# 预填充时，一个头的字节几乎全是分数，FlashAttention 正是为此而生。解码时，分数少到可以忽略。常有人说“用了 FlashAttention，解码就快”。其实对解码有用的，是减少 K 和 V 的字节：GQA、MLA、量化，再加上每个字节只读一次。
#
# ## 顺着块表走
#
# 池的形状是 [N, P, K, D]：N 个块，每块 P 个槽位，K 个头，每个头 D 个数，在内存里排成长长的一行。token n 在块 `table[n // P]` 的槽位 `n % P`：
#
# $$\text{address} = \text{table}[n // P] \times \text{stride}_n + (n \,\%\, P) \times \text{stride}_p + \text{head} \times \text{stride}_k + d$$
#
# 一次加载，可以用任意地址组成的 tile。所以每个通道都能去找自己的块，不用复制：这叫**跨步收集**（strided gather）。一个装 16 个 token 的 tile，可以落在四个块里，每块 4 个槽位，块在哪里都行。


# %% tags=["claim-gather"]
# needs Triton
@triton.jit
def gather_kernel(pool_ptr, table_ptr, out_ptr, length, stride_n, stride_p, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    n = tl.arange(0, BLOCK_N)
    page = tl.load(table_ptr + n // PAGE, mask=n < length, other=0).to(tl.int64)
    at = page * stride_n + n % PAGE * stride_p
    tl.store(out_ptr + n, tl.load(pool_ptr + at, mask=n < length, other=-1.0))


numbered = torch.arange(9 * 4.0, device=device).reshape(9, 4)  # slot s of block b holds 4 b + s
my_table = torch.tensor([5, 2, 7], dtype=torch.int32, device=device)
seen = torch.empty(16, device=device)
gather_kernel[(1,)](numbered, my_table, seen, 10, 4, 1, PAGE=4, BLOCK_N=16)
print("10 tokens of blocks 5, 2, 7, and 6 lanes off:")
print(seen.int().tolist())

# %% [markdown] lang="en"
# Now the whole batch. In the engine a program takes one K/V head of one sequence. Move the sliders. Which blocks does the
# orange program load, and who else loads from them? How many lanes are off with tiles of 4, and with 32?

# %% [markdown] lang="zh" en="5decf6de"
# 现在看整个 batch。在引擎里，一个 program 负责一个序列的一个 K/V 头。拖动滑块看看：橙色的 program 读哪些块？还有谁也读这些块？tile 大小为 4 时，有几个通道关闭？为 32 时呢？

# %%
panel(pictures.programs, sequence=(0, 0, 2), kv_head=(1, 0, 1), block_n={16: [4, 8, 16, 32]}, height=4.4)

# %% tags=["claim-which-block"]
shown = picture(pictures.programs, sequence=0, kv_head=1, block_n=16, height=4.4)
print(textwrap.fill(shown.text, 79))
for tile in (4, 8, 16, 32):
    print(f"tiles of {tile:>2}: {-pictures.LENGTHS[0] % tile:>2} lanes off")
shown

# %% [markdown] lang="en"
# The other K/V head's program looks into the same blocks, but at its own numbers. Those of the orange program nobody else loads. So
# programs need not talk to each other, and each byte can be loaded once. Lanes that are off cost no bytes, only room.
#
# One trap is left. `page * stride_n` is counted in numbers.

# %% [markdown] lang="zh" en="9bc67c15"
# 另一个 K/V 头的 program 也读这些块，但读的是它自己的数。橙色 program 的那些数，没有别人读。所以 program 之间不用通信，每个字节可以只读一次。关闭的通道不费字节，只占位置。
#
# 还剩一个陷阱：`page * stride_n` 按元素个数计，可能会很大。这里的 page（页）就是块的编号。
#
# 猜一猜：还是“痛点”里的那个 Llama 模型。一层的池里，每块 16 个槽位，一个块里 K 有 16 × 8 × 128 个数。int32 最大到 2,147,483,647。偏移按元素个数计，从几号块起就放不下了？

# %%
predict("10.overflow", value=None)

# %% tags=["claim-int32"]
numbers_per_block = np.int32(16 * 8 * 128)
blocks = np.array([131_071, 131_072], np.int32)
print("block × stride in int32:", blocks * numbers_per_block)
print("in int64:", blocks.astype(np.int64) * numbers_per_block)
print(f"all 32 layers in one pool, block by block: from block {2**31 // (32 * 16 * 8 * 128):,} on")

# %% [markdown] lang="en"
# The offset turns negative and points before the pool. On a GPU that crashes, or reads wrong numbers without a word. It comes sooner where
# all layers lie in one pool, since a block is wider there. vLLM's decode kernels crashed like that until July 2026
# ([#47671](https://github.com/vllm-project/vllm/pull/47671)). The cure is one cast. Widen the page number before you multiply:
# `.to(tl.int64)`.
#
# ## Exercise 10.3 - paged
#
# Difficulty 4/5 · importance 5/5 · 25 minutes · about 24 lines
#
# Write the kernel for a whole batch: program (h, row) takes query head h of sequence `row`. So `program_id(0)` is h, `program_id(1)` is
# row. The loop is that of 10.2. New are the addresses.
#
# - `q` is [B, H, D] with strides `q_stride_b` and `q_stride_h`. It is a view, so its rows do not touch. `out` has its own strides.
# - The context of a sequence has `tl.load(length_ptr + row)` tokens. Its table starts at `table_ptr + row * table_stride`.
# - Query head h reads K/V head `h // GROUP` ([lesson 04](lessons/04_gqa_and_mla.ipynb)). K and V have the same strides.
# - Unused slots hold NaN. Entries behind the table's end may be nonsense: mask the load of the table too.
# - Pools may be float16. Then widen q, k and v to float32 as you load them. Sums of products need the digits.
# - A context of 0 tokens gives zeros: store them.

# %% [markdown] lang="zh" en="d587f3c1"
# 偏移变成负数，指到了池的前面。在 GPU 上，这要么崩溃，要么一声不响地读错数。如果所有层放在同一个池里，块更宽，问题来得更早。直到 2026 年 7 月，vLLM 的解码 kernel 还会因此崩溃（[#47671](https://github.com/vllm-project/vllm/pull/47671)）。解决办法只是一次类型转换：做乘法之前，先用 `.to(tl.int64)` 把页号变成 64 位。
#
# ## 练习 10.3 - 分页
#
# 难度 4/5 · 重要性 5/5 · 25 分钟 · 大约 24 行
#
# 为整个 batch 写 kernel：program (h, row) 负责序列 `row` 的查询头 h。也就是说，`program_id(0)` 是 h，`program_id(1)` 是 row。循环和 10.2 一样，新的只有地址。
#
# - `q` 是 [B, H, D]，步长是 `q_stride_b` 和 `q_stride_h`。它是视图（view），行与行并不挨着。`out` 有自己的步长。
# - 序列的上下文有 `tl.load(length_ptr + row)` 个 token。它的块表从 `table_ptr + row * table_stride` 开始。
# - 查询头 h 读 K/V 头 `h // GROUP`（[第 04 课](lessons/04_gqa_and_mla.ipynb)）。K 和 V 的步长相同。
# - 没用到的槽位里是 NaN。块表末尾之后的数可能毫无意义：加载块表时也要用掩码。
# - 池可能是 float16。那就在加载 q、k、v 时转成 float32：乘积要累加，需要这样的精度。
# - 上下文为 0 个 token 时，结果是 0，也要写回。


# %% exercise="paged_decode"
# needs Triton
@triton.jit
def paged_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, out_ptr, scale,
    q_stride_b, q_stride_h, stride_n, stride_p, stride_k, table_stride, out_stride_b, out_stride_h,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Store attention of one query head of one sequence."""
    ### BEGIN SOLUTION
    h = tl.program_id(0)
    row = tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + row * q_stride_b + h * q_stride_h + d, mask=d < D, other=0.0).to(tl.float32)
    length = tl.load(length_ptr + row)
    top = float("-inf")
    total = 0.0
    out = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = page * stride_n + n % PAGE * stride_p + h // GROUP * stride_k
        tile = live[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + at[:, None] + d[None, :], mask=tile, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=tile, other=0.0).to(tl.float32)
        s = tl.where(live, tl.sum(q[None, :] * k, 1) * scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 0))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(s - new_top)
        total = total * shrink + tl.sum(weights, 0)
        out = out * shrink + tl.sum(weights[:, None] * v, 0)
        top = new_top
    out = out / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * out_stride_b + h * out_stride_h + d, out, mask=d < D)
    ### END SOLUTION


def paged_decode(q, k_pool, v_pool, block_tables, context_lens, scale):
    """q[B, H, D], pools [N, P, K, D], tables [B, M] int32, lengths [B] int32 -> [B, H, D]."""
    (B, H, D), (_, P, K, _) = q.shape, k_pool.shape
    assert k_pool.stride() == v_pool.stride()
    out = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    paged_kernel[(H, B)](
        q, k_pool, v_pool, block_tables, context_lens, out, scale,
        *q.stride()[:2], *k_pool.stride()[:3], block_tables.stride(0), *out.stride()[:2],
        GROUP=H // K, D=D, PAGE=P, BLOCK_N=64, BLOCK_D=triton.next_power_of_2(D),
    )  # fmt: skip
    return out


# %% test="paged_decode" points=3
# needs Triton
paged_decode = check("10.paged", paged_decode)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `gather_kernel` above finds pages and offsets. With `at[:, None] + d[None, :]` its lanes become rows of a tile.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Load q for (row, h). In the loop: `n`, `live`, `page` as int64, `at` with the head in it, the tile's mask, k, v. Then the steps of
# 10.2. At the end divide by `tl.where(total == 0.0, 1.0, total)`.
#
# </details>
# <details><summary>Hint 3: "WildAccessError"</summary>
#
# The message names the tensor, how far off the address is, and the line. `table_ptr`: the load of the table has no mask. `k_ptr` or
# `v_ptr`, by billions of bytes: the page is an int32, or it has been an entry from behind the table's end.
#
# </details>
#
# ## Who loads it again?
#
# In the picture a program took a K/V head. Yours takes a query head.

# %% [markdown] lang="zh" en="fdb36f57"
# <details><summary>提示 1：从哪里入手</summary>
#
# 上面的 `gather_kernel` 已经会算页号和偏移。再用 `at[:, None] + d[None, :]`，它的每个通道就变成 tile 的一行。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 按 (row, h) 加载 q。循环里依次是：`n`、`live`、int64 的 `page`、算上头的 `at`、tile 的掩码、k、v。接着是 10.2 的步骤。最后除以 `tl.where(total == 0.0, 1.0, total)`。
#
# </details>
# <details><summary>提示 3：报错“WildAccessError”</summary>
#
# 报错信息会说是哪个张量、地址偏了多远、在哪一行。如果是 `table_ptr`：加载块表时没有用掩码。如果是 `k_ptr` 或 `v_ptr`，而且偏了几十亿字节：页号还是 int32，或者取自块表末尾之后。
#
# </details>
#
# ## 谁又读了一遍？
#
# 图里的 program 负责一个 K/V 头，你的 program 负责一个查询头。
#
# 猜一猜：还是那个 Llama 模型，有 32 个查询头、8 个 K/V 头，一个 program 负责一个查询头。生成一个 token，整个网格把缓存里的每个数各加载几次？

# %%
predict("10.again", value=None)

# %% [markdown] lang="en"
# ## Exercise 10.4 - a program for a group
#
# Difficulty 4/5 · importance 5/5 · 25 minutes · about 28 lines
#
# Program (kv_head, row) takes all GROUP query heads that read this K/V head. q becomes a tile [BLOCK_H, BLOCK_D], scores [BLOCK_H,
# BLOCK_N], and both products are matrix products: `tl.dot`.
#
# - Matrix units take tiles of 16 and more, on each side. So BLOCK_H and BLOCK_D are at least 16: a group of 4 has **12 rows of
#   padding**. They compute nonsense. It must not be stored, least of all over a neighbour's heads.
# - Each row has its own maximum and sum: tiles [BLOCK_H]. `tl.max(s, 1)` folds the rows. Heads may differ by far.
# - `tl.dot` takes two tiles of one type, float16 too, and sums in float32. So q and k stay as loaded, and the weights become
#   `weights.to(v.dtype)`. The scale comes after the product.
# - `input_precision="ieee"` keeps all digits of float32. Without it a GPU rounds to TF32, 10 bits. No check here can see that.
# - `WINDOW` > 0 means: only the last WINDOW tokens, the newest included. What lies before may be gone. 0 means all. `if WINDOW > 0:` may
#   stand in a kernel, since WINDOW is a constant.

# %% [markdown] lang="zh" en="147e9399"
# ## 练习 10.4 - 一个组一个 program
#
# 难度 4/5 · 重要性 5/5 · 25 分钟 · 大约 28 行
#
# program (kv_head, row) 负责共用这个 K/V 头的全部 GROUP 个查询头。q 变成 tile [BLOCK_H, BLOCK_D]，分数是 [BLOCK_H, BLOCK_N]，两个乘积都成了矩阵乘法：`tl.dot`。
#
# - 矩阵单元要求 tile 的每条边至少是 16。所以 BLOCK_H 和 BLOCK_D 至少是 16：一组只有 4 个头时，就有 **12 行填充**（padding）。这些行算出来的东西毫无意义，不能写回，更不能盖掉邻组的头。
# - 每一行有自己的最大值与和，都是 tile [BLOCK_H]。`tl.max(s, 1)` 把每一行归约成一个数。不同的头，分数可能相差很远。
# - `tl.dot` 要求两个 tile 类型相同，float16 也行，累加用 float32。所以 q 和 k 加载进来是什么类型就用什么类型，权重要转成 `weights.to(v.dtype)`。scale 等矩阵乘法之后再乘。
# - `input_precision="ieee"` 保留 float32 的全部精度。不写它，GPU 会把输入舍入成 TF32，尾数只剩 10 位。这一点，这里的检查看不出来。
# - `WINDOW` > 0 表示只看最后 WINDOW 个 token，最新的那个也算在内；再往前的，可能已经不在缓存里了。0 表示全部都看。WINDOW 是常量，所以 kernel 里可以写 `if WINDOW > 0:`。


# %% exercise="gqa_decode"
# needs Triton
@triton.jit
def group_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, out_ptr, scale,
    q_stride_b, q_stride_h, stride_n, stride_p, stride_k, table_stride, out_stride_b, out_stride_h,
    GROUP: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Store attention of the query heads kv_head * GROUP onwards of one sequence."""
    ### BEGIN SOLUTION
    kv_head, row = tl.program_id(0), tl.program_id(1)
    g = tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    rows = (g < GROUP)[:, None] & (d < D)[None, :]
    h = (kv_head * GROUP + g)[:, None]
    q = tl.load(q_ptr + row * q_stride_b + h * q_stride_h + d[None, :], mask=rows, other=0.0)
    length = tl.load(length_ptr + row)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0)
    top = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    out = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for start in range(first, length, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)
        at = page * stride_n + n % PAGE * stride_p + kv_head * stride_k
        tile = live[:, None] & (d < D)[None, :]
        k = tl.load(k_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(live[None, :], s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp(top - new_top)
        weights = tl.exp(s - new_top[:, None])
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = new_top
    out = out / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out_ptr + row * out_stride_b + h * out_stride_h + d[None, :], out, mask=rows)
    ### END SOLUTION


def gqa_decode(q, k_pool, v_pool, block_tables, context_lens, scale, *, window=None, k_scale=None, v_scale=None):
    """As paged_decode. The engine also passes scales, for int8 pools: they are None here."""
    (B, H, D), (_, P, K, _) = q.shape, k_pool.shape
    assert k_pool.stride() == v_pool.stride()
    out = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    group_kernel[(K, B)](
        q, k_pool, v_pool, block_tables, context_lens, out, scale,
        *q.stride()[:2], *k_pool.stride()[:3], block_tables.stride(0), *out.stride()[:2],
        GROUP=H // K, D=D, PAGE=P, WINDOW=window or 0, BLOCK_H=max(16, triton.next_power_of_2(H // K)), BLOCK_N=64,
        BLOCK_D=max(16, triton.next_power_of_2(D)),
    )  # fmt: skip
    return out


# %% test="gqa_decode" points=3
# needs Triton
gqa_decode = check("10.gqa", gqa_decode)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Take your kernel of 10.3. Whatever belongs to a query head gets one axis more, of BLOCK_H, in front.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `g = tl.arange(0, BLOCK_H)`, head `kv_head * GROUP + g`, and `rows = (g < GROUP)[:, None] & (d < D)[None, :]` masks the load of q and the
# store. The loop starts at 0, and `if WINDOW > 0` at `tl.maximum(length - WINDOW, 0)`. `shrink[:, None]` multiplies each row of `out`.
#
# </details>
# <details><summary>Hint 3: "rows of padding are stored nowhere" fails</summary>
#
# A padded row has the address of the next group's head, or lies behind `out`. That the next program may store there later is luck: mask
# it.
#
# </details>
#
# Now `paged_decode` and `gqa_decode` under the traffic counter, over the contexts of the picture: yours, or the reference where a check
# has not said ok. The interpreter counts each byte that is asked for. Formula, counter and picture must agree.

# %% [markdown] lang="zh" en="fbc7f6eb"
# <details><summary>提示 1：从哪里入手</summary>
#
# 从你在 10.3 里写的 kernel 改起。凡是属于查询头的，都在最前面多一个 BLOCK_H 轴。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# `g = tl.arange(0, BLOCK_H)`，头的编号是 `kv_head * GROUP + g`，加载 q 和写回都用掩码 `rows = (g < GROUP)[:, None] & (d < D)[None, :]`。循环从 0 开始；`if WINDOW > 0` 时从 `tl.maximum(length - WINDOW, 0)` 开始。`shrink[:, None]` 乘到 `out` 的每一行上。
#
# </details>
# <details><summary>提示 3：“rows of padding are stored nowhere”这一项不通过</summary>
#
# 填充行的地址属于下一组的头，或者已经在 `out` 之外。就算下一个 program 后来又把那里写对了，也只是运气：用掩码挡住。
#
# </details>
#
# 现在给 `paged_decode` 和 `gqa_decode` 接上流量计数器，上下文和图里一样。通过检查的用你的版本，没通过的用参考答案。它们请求的每个字节，解释器都会数到。公式、计数器和图必须一致。

# %% tags=["claim-three-ways"]
# needs Triton
cache = Cache(pictures.LENGTHS, heads=(8, 2), size=32)
by_formula = 2 * sum(cache.lengths) * 2 * 32 * 4  # K and V, tokens, heads, size, bytes
drawn = picture(pictures.programs, sequence=0, kv_head=0, block_n=16).text
if is_interpreted():
    inputs = cache.tensors()
    for name, decode in (("paged_decode", paged_decode), ("gqa_decode", gqa_decode)):
        with traffic() as launches:
            decode(*inputs, cache.scale)
        asked = launches[0].loaded["k_ptr"] + launches[0].loaded["v_ptr"]
        distinct = launches[0].distinct["k_ptr"] + launches[0].distinct["v_ptr"]
        print(
            f"{name}, grid {launches[0].grid[:2]}: {asked:,} B of K and V, {distinct:,} B distinct, loads of each: {asked // distinct}"
        )
        assert distinct == by_formula
    assert asked == by_formula
else:
    print("counted in the interpreter only: start Jupyter with TRITON_INTERPRET=1")
print(f"formula: {by_formula:,} B; picture: all {drawn.split('all ')[1]}")

# %% [markdown] lang="en"
# A program a head asks for each byte four times. A GPU's L2 cache may serve some of them, and nothing promises it. One program a
# group asks once.
#
# ## What about the padding?
#
# Twelve of 16 rows are thrown away: three quarters of the products. Does it matter? The functions of
# [lesson 03](lessons/03_roofline.ipynb) know:

# %% [markdown] lang="zh" en="20bc52a6"
# 一个头一个 program，每个字节要请求四次。其中几次，GPU 的 L2 缓存也许接得住，但谁也不保证。一个组一个 program，只请求一次。
#
# ## 填充要紧吗？
#
# 16 行里有 12 行要扔掉，也就是四分之三的乘法白做了。要紧吗？用[第 03 课](lessons/03_roofline.ipynb)的函数算一算：

# %% tags=["claim-roofline"]
shape = llama.num_attention_heads, llama.num_key_value_heads, llama.head_dim
ridge = float(ridge_point(gpu.bf16_flops, gpu.memory_bandwidth))
useful = float(attn_decode_intensity(*shape, 8192))
padded = useful * 16 / (shape[0] // shape[1])
print(f"useful work {useful:.2f} FLOP/B, with padding {padded:.2f} FLOP/B, ridge of an H100 {ridge:.0f} FLOP/B")
print(f"at full bandwidth the padded products take {padded / ridge:.1%} of the matrix units")
assert padded < ridge

# %% [markdown] lang="en"
# It does not. The products have time while bytes arrive: padded too, the kernel stays far left of the ridge, where memory is the limit. So
# judge a decode kernel by bytes per second against the memory's, never by FLOP/s.
#
# ## What becomes of a kernel
#
# A compiler can make code for a GPU that is not there, in a process of its own. Here is `gqa_decode` for an H100, which the compiler calls
# **sm_90**. It first becomes **PTX**, text that is close to machine code. Two head sizes, in float16:

# %% [markdown] lang="zh" en="f15a220a"
# 不要紧。反正要等字节，乘法有的是时间：在屋顶线模型里，就算加上填充，这个 kernel 也远在脊点（ridge）左边，是访存受限的。所以评价解码 kernel，要拿它每秒读的字节数和内存带宽比，不要看 FLOP/s。
#
# ## kernel 编译成了什么
#
# 就算手边没有那种 GPU，编译器也能为它生成代码，只是要放在单独的进程里。下面为 H100 编译 `gqa_decode`，编译器管 H100 叫 **sm_90**。kernel 先变成 **PTX**，一种接近机器码的文本。头的大小取两种，都是 float16：


# %% tags=["claim-compiled", "nbval-ignore-output"]
# needs Triton
def on_an_h100(size):
    """What the compiler makes of gqa_decode for 8 K/V heads of this size: what it needs, and its PTX."""
    q = torch.zeros(1, 32, size, dtype=torch.float16)
    pools = torch.zeros(2, 5, 16, 8, size, dtype=torch.float16)
    with launches_kept() as launches:
        gqa_decode(q, *pools, torch.ones((1, 4), dtype=torch.int32), torch.ones(1, dtype=torch.int32), size**-0.5)
    return compiled(launches[0])


if is_interpreted():
    print(f"{'head size':>9}{'registers':>11}{'spills':>8}{'wide loads':>12}{'matrix products':>17}  most loads are")
    for size in (128, 100):
        made = on_an_h100(size)
        if made is None:
            print("nothing can be compiled here")
            break
        n = made.needs
        loads, _ = Counter(re.findall(r"(?:ld.global|cp.async)[.\w]+", made.ptx)).most_common(1)[0]
        print(
            f"{size:>9}{n['registers']:>11}{n['spills']:>8}{n['wide_loads']:>12}{n['matrix_instructions']:>17}  {loads}"
        )

# %% [markdown] lang="en"
# A **register** holds a thread's numbers. What does not fit **spills** to memory. A **wide load** moves 16 bytes for a thread at once, and
# the compiler may use it where all addresses are multiples of 16 bytes. Heads of 128 numbers keep to that. With heads of 100 **the wide
# loads vanish**, and more numbers spill. Results stay right, so no test of numbers sees it. The engine's kernels have a report for that, for three GPUs:
# `python -m mini_engine.kernels.compile_report`.
#
# ## Exercise 10.5 - write
#
# Difficulty 2/5 · importance 4/5 · 15 minutes · about 9 lines
#
# The way in: program (t, h) stores head h of token t in slot `tl.load(slot_ptr + t)` of both pools. `program_id(0)` is t.
#
# - Slots are int64: block × PAGE + offset, from 0 on. **Slot -1 is padding**, and nothing is stored.
# - k and v are views, each with its own strides: use v's for v. The pools share theirs.

# %% [markdown] lang="zh" en="c0210a1e"
# **寄存器**存放一个线程的数，放不下的就**溢出**（spill）到内存。**宽加载**（wide load）让一个线程一次读 16 字节，只有当所有地址都是 16 字节的倍数时，编译器才能用它。头的大小是 128 时，满足这个条件。换成 100，**宽加载就没有了**，溢出也更多。结果照样正确，所以只比较数值的测试发现不了。引擎自己的 kernel 有一份这样的报告，涵盖三种 GPU：`python -m mini_engine.kernels.compile_report`。
#
# ## 练习 10.5 - 写入
#
# 难度 2/5 · 重要性 4/5 · 15 分钟 · 大约 9 行
#
# 数据是这样进缓存的：program (t, h) 把 token t 的头 h 写进两个池，槽位是 `tl.load(slot_ptr + t)`。`program_id(0)` 是 t。
#
# - 槽位是 int64：块的编号 × PAGE + 块内偏移，从 0 开始。**槽位 -1 表示填充**，什么也不写。
# - k 和 v 是视图，步长各不相同：加载 v 要用 v 的步长。两个池的步长相同。


# %% exercise="write_kv"
# needs Triton
@triton.jit
def write_kernel(
    k_ptr, v_ptr, k_pool_ptr, v_pool_ptr, slot_ptr,
    k_stride_t, k_stride_h, v_stride_t, v_stride_h, stride_n, stride_p, stride_k,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Copy one head of one token into its slot."""
    ### BEGIN SOLUTION
    t, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    slot = tl.load(slot_ptr + t)
    stored = (d < D) & (slot >= 0)
    k = tl.load(k_ptr + t * k_stride_t + h * k_stride_h + d, mask=stored, other=0.0)
    v = tl.load(v_ptr + t * v_stride_t + h * v_stride_h + d, mask=stored, other=0.0)
    at = slot // PAGE * stride_n + slot % PAGE * stride_p + h * stride_k + d
    tl.store(k_pool_ptr + at, k, mask=stored)
    tl.store(v_pool_ptr + at, v, mask=stored)
    ### END SOLUTION


def write_kv(k, v, k_pool, v_pool, slot_mapping, *, k_scale=None, v_scale=None):
    """k[T, K, D] and v[T, K, D] into slots slot_mapping[T] of pools [N, P, K, D]."""
    T, K, D = k.shape
    assert k_pool.stride() == v_pool.stride()
    if T:
        write_kernel[(T, K)](
            k, v, k_pool, v_pool, slot_mapping,
            *k.stride()[:2], *v.stride()[:2], *k_pool.stride()[:3],
            D=D, PAGE=k_pool.shape[1], BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip


# %% test="write_kv" points=2
# needs Triton
write_kv = check("10.write_kv", write_kv)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The address in the pool is that of 10.3, with `slot // PAGE` in place of the page.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# One mask for all: `(d < D) & (slot >= 0)`. Load k and v with their own strides, store both at the same place.
#
# </details>
# <details><summary>Hint 3: "a slot of -1" fails</summary>
#
# An `if` is not needed: where the mask is off, a wild address harms nobody.
#
# </details>
#
# ## Your kernels write text
#
# The engine takes both, and we count how often it calls them. Prefill attends with torch. After that each decode token of both requests
# goes through `gqa_decode`, in four layers.

# %% [markdown] lang="zh" en="acdbc82f"
# <details><summary>提示 1：从哪里入手</summary>
#
# 池里的地址和 10.3 一样，只是用 `slot // PAGE` 代替页号。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 一个掩码用到底：`(d < D) & (slot >= 0)`。k 和 v 按各自的步长加载，写到两个池的同一位置。
#
# </details>
# <details><summary>提示 3：“a slot of -1”这一项不通过</summary>
#
# 不需要 `if`：通道关闭了，地址再离谱也没事。
#
# </details>
#
# ## 你的 kernel 写出文本
#
# 把两个都交给引擎，再数一数各调用了几次。预填充的注意力用 torch 算。之后两个请求的每个解码 token，在四层里都要经过 `gqa_decode`。

# %% tags=["claim-engine"]
# needs Triton
calls = Counter()


def counted(name, function):
    def call(*args, **kwargs):
        calls[name] += 1
        return function(*args, **kwargs)

    return call


prompts, params = ["The young lady", "Emma was"], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
options = {"block_size": 4, "num_blocks": 24}
own = {"decode": counted("gqa_decode", gqa_decode), "write": counted("write_kv", write_kv)}
mine = LLM("tiny-gqa", backend="triton", **own, **options)
texts = [
    [one.outputs[0].text for one in llm.generate(prompts, params, progress=False)]
    for llm in (mine, LLM("tiny-gqa", backend="torch", **options))
]
for prompt, text in zip(prompts, texts[0]):
    print(f"{len(mine.tokenizer.encode(prompt))} tokens, then 6 more: {prompt}{text}")
print(f"calls: {dict(calls)}; as with torch: {texts[0] == texts[1]}")
assert texts[0] == texts[1]

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# Two numbers to guess. Then: when does this kernel not reach the memory's bandwidth? A GPU has many processors, and a program runs on one of them.

# %% [markdown] lang="zh" en="e9cdb3f9"
# ## 自测
#
# 猜两个数。第一问：模型有 8 个 K/V 头，一个 program 负责一个序列的一个 K/V 头。一个 batch 有 3 个序列，会启动多少个 program？第二问：上下文有 70 个 token，tile 有 64 个通道。最后一个 tile 有多少个通道关闭？
#
# 再想一想：这个 kernel 什么时候跑不满内存带宽？GPU 有许多处理器，而一个 program 只在其中一个上运行。

# %% tags=["self-check"]
predict("10.programs", value=None)
predict("10.masked", value=None)

# %% tags=["claim-counter-example"]
PROCESSORS = 132  # of an H100
print(f"sequences  programs  processors with work, of {PROCESSORS}")
for batch in (1, 3, 32):
    started = batch * llama.num_key_value_heads
    print(f"{batch:>9}{started:>10}{min(1, started / PROCESSORS):>22.0%}")

# %% [markdown] lang="en" tags=["in-production"]
# With few sequences. One long request keeps 8 processors busy, and the rest wait. Lesson 11 cuts its context in parts.
#
# ## In production
#
# Names as of 2026, in the main branches.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | `gqa_decode` | `triton_unified_attention.py` | `decode_attention.py`, `_fwd_grouped_kernel_stage1` |
# | a program a head | `triton_decode_attention.py`, `_fwd_kernel_stage1` | `_fwd_kernel_stage1` |
# | `write_kv` | `reshape_and_cache_flash` | `set_kv_buffer` |
# | the table | `block_table`, an entry a block | `kv_indices`, an entry a token |
# | `BLOCK_H` | `BLOCK_M`, at least 16 | `BLOCK_H`, 16 |
#
# FlashInfer reads with `BatchDecodeWithPagedKVCacheWrapper` and writes with `append_paged_kv_cache`. Its table is `indices`, an
# entry a page.

# %% [markdown] lang="zh" en="2ca57cb5"
# 序列少的时候。只有一个长请求，就只有 8 个处理器有活干，其余的都闲着。第 11 课会把它的上下文切成几段。
#
# ## 在生产系统中
#
# 名称以 2026 年的 main 分支为准。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | `gqa_decode` | `triton_unified_attention.py` | `decode_attention.py`、`_fwd_grouped_kernel_stage1` |
# | 一个头一个 program | `triton_decode_attention.py`、`_fwd_kernel_stage1` | `_fwd_kernel_stage1` |
# | `write_kv` | `reshape_and_cache_flash` | `set_kv_buffer` |
# | 块表 | `block_table`，每块一项 | `kv_indices`，每个 token 一项 |
# | `BLOCK_H` | `BLOCK_M`，至少 16 | `BLOCK_H`，16 |
#
# FlashInfer 用 `BatchDecodeWithPagedKVCacheWrapper` 读，用 `append_paged_kv_cache` 写。它的块表叫 `indices`，每页一项。

# %% [markdown] lang="en" tags=["limits", "question"]
# > **What this does not show**
# >
# > - Speed. The interpreter says nothing about it, and no time of a GPU stands here.
# > - Races within a program, shared memory, and bank conflicts. Programs run one after the other here. The checks refuse two that store
# >   in one place.
# > - Rounding of a GPU, such as TF32, and its order of sums.
# > - Prefill, int8 pools, and tables of tiles for each GPU. The engine's kernels have the last two.
#
# ## Questions that people ask
#
# <details><summary>Why is BLOCK_N not the block size?</summary>
#
# A tile of 64 suits the matrix units. A block of 16, or of 1, suits the memory manager. Each lane looks up its own block, so neither
# has to give in.
#
# </details>
# <details><summary>Can I use print in a kernel?</summary>
#
# In the interpreter yes, and tiles show their numbers. Compiled it is `tl.device_print`. A kernel for a real GPU should have neither.
#
# </details>
# <details><summary>Why exp here, and exp2 in the engine?</summary>
#
# A GPU computes powers of 2. The engine multiplies the scale by log2(e) once, and saves a product for each score.
#
# </details>

# %% [markdown] lang="zh" en="9a492d60"
# > **这一课没有说明的事**
# >
# > - 速度。解释器说明不了速度，这里也没有任何 GPU 上的时间。
# > - program 内部的数据竞争、共享内存和 bank 冲突。这里的 program 是一个接一个运行的。如果两个 program 写到同一个地方，检查不会放行。
# > - GPU 的舍入（例如 TF32）和求和顺序。
# > - 预填充、int8 的池，以及按 GPU 型号选 tile 大小的表。后两样，引擎的 kernel 里都有。
#
# ## 常见问题
#
# <details><summary>为什么 BLOCK_N 不等于块的大小？</summary>
#
# 一个 tile 装 64 个 token，适合矩阵单元。一个块装 16 个，甚至只装 1 个，适合内存管理器。每个通道自己查自己的块，所以谁也不用迁就谁。
#
# </details>
# <details><summary>kernel 里能用 print 吗？</summary>
#
# 在解释器里可以，能看到 tile 里的数。编译运行时要用 `tl.device_print`。真正给 GPU 用的 kernel，两样都不该留。
#
# </details>
# <details><summary>为什么这里用 exp，引擎里用 exp2？</summary>
#
# GPU 算的本来就是 2 的幂。引擎事先把 scale 乘上 log2(e)，只乘一次，每个分数就省下一次乘法。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A kernel is a grid of programs. Each loads tiles under masks, and what a lane that is off holds is up to `other`.
# - Decode attention is online softmax in a loop over tiles. Each lane finds its token through the block table, in 64 bits.
# - One program a group loads each byte once. Padding to 16 rows is free, as long as bytes are what is scarce.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | program | 程序实例 | "a block", "a CTA" | one run of the kernel's code, with its own program_id |
# | grid | 网格 | "the launch" | how many programs, along up to three axes |
# | lane | 通道 | "an element" | one place in a tile |
# | tile | 分块 | "a block of data" | a small array in registers, of power-of-2 sides |
# | mask | 掩码 | "the bounds check" | which lanes of a load or a store are on |
# | stride | 步长 | "the pitch" | how many numbers from one row to the next |
# | strided gather | 跨步收集 | "the paged load" | a load whose lanes have addresses of their own |
# | wide load | 宽加载 | "vectorized", "128-bit" | 16 bytes for a thread in one instruction |
#
# **Open exercises.** *Easy:* use `tl.exp2` in `gqa_decode`. *Medium:* read int8 pools, with a scale for each token and head. *Research:* lay
# the pool out as [N, K, P, D]. Which loads get wider, and what does `write_kv` pay?
#
# **Back:** [09 · Prefix caching](lessons/09_prefix_caching.ipynb) · **Next:** [11 · Triton MLA decode kernel](lessons/11_triton_mla.ipynb)

# %% [markdown] lang="zh" en="0f57ef07"
# ## 三句话总结
#
# - kernel 是由 program 组成的网格。每个 program 用掩码加载 tile；关闭的通道里是什么，由 `other` 决定。
# - 解码注意力就是逐个 tile 做在线 softmax。每个通道顺着块表找到自己的 token，地址用 64 位算。
# - 一个组一个 program，每个字节只加载一次。只要瓶颈是字节，填充到 16 行就没有代价。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | 程序实例 | program | “a block”、“a CTA” | 把 kernel 的代码运行一次，有自己的 program_id |
# | 网格 | grid | “the launch” | program 有多少个、怎么排，最多三个轴 |
# | 通道 | lane | “an element” | tile 里的一个位置 |
# | 分块 | tile | “a block of data” | 寄存器里的小数组，每条边都是 2 的幂 |
# | 掩码 | mask | “the bounds check” | 加载或写回时，哪些通道是打开的 |
# | 步长 | stride | “the pitch” | 从一行到下一行隔多少个数 |
# | 跨步收集 | strided gather | “the paged load” | 每个通道各有各的地址的一次加载 |
# | 宽加载 | wide load | “vectorized”、“128-bit” | 一条指令为一个线程读 16 字节 |
#
# **开放练习。** *简单*：在 `gqa_decode` 里改用 `tl.exp2`。*中等*：读 int8 的池，每个 token、每个头有一个 scale。*研究*：把池排成 [N, K, P, D]。哪些加载会变宽？`write_kv` 要付出什么代价？
#
# **上一课：** [09 · 前缀缓存](lessons/09_prefix_caching.ipynb) · **下一课：** [11 · Triton MLA 解码 kernel](lessons/11_triton_mla.ipynb)
