# %% [markdown] lang="en" tags=["goals"]
# # 07 · Block tables
#
# **A request in pieces, and nobody minds.**
#
# 90 to 120 minutes · NumPy, no GPU · after lessons 01 and 06
#
# After this lesson you can
#
# - say in which slot any token of any request lies;
# - write attention over blocks that do not touch, and let the engine write text with it;
# - say what paging costs: the end of a block, a table, and a slower kernel.

# %% [markdown] lang="zh" en="8c91099f"
# # 07 · 块表
#
# **一个请求拆成了几块，谁也不在意。**
#
# 90 到 120 分钟 · 只用 NumPy，不需要 GPU · 先学第 01 课和第 06 课
#
# 学完这一课，你能够：
#
# - 说出任何一个请求的任何一个 token 在哪个槽位里；
# - 写出能在互不相邻的块上计算的注意力，并让引擎用它写出文本；
# - 说出分页的代价：最后一块的末尾、一张表，以及更慢的 kernel。

# %%
from collections import deque
from itertools import pairwise
from timeit import timeit

import numpy as np

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.attention import decode_attention, gather
from mini_engine.backends import AuditBackend, NumpyBackend
from mini_engine.cache import BlockPool, KVCacheManager
from mini_engine.course import bugs_caught, check, panel, picture, predict, svg
from mini_engine.course.broken_pool import PagedKVPool
from mini_engine.course.cache_requests import CacheUser, compute, decode, start
from mini_engine.course.film import Arrival, film, frame, frames, replay
from mini_engine.course.panels import p07_block_tables as pictures
from mini_engine.geometry import kv_bytes_per_token, paged_utilization, param_breakdown
from mini_engine.models import load_model
from mini_engine.roofline import decode_step_time_additive, prefill_flops
from mini_engine.roofline.measure import best_seconds
from mini_engine.workload import load_trace

# %% [markdown] lang="en"
# ## The pain
#
# A memory has 128 slots. Request A has 48 tokens, in slots 0 to 47. B has 48 too, right behind it. Slots 96 to 127 are
# free. Now A makes its next token.

# %% [markdown] lang="zh" en="bc60115f"
# ## 痛点
#
# 一块内存有 128 个槽位。请求 A 有 48 个 token，放在槽位 0 到 47。B 也有 48 个，紧跟在后面。槽位 96 到 127 空闲。现在 A 要生成下一个 token。

# %% tags=["claim-cannot-grow"]
rng = np.random.default_rng(7)
k, v = rng.normal(size=(2, 128, 1, 4))  # K and V: 128 slots, 1 head of size 4
q, new_k, new_v = rng.normal(size=(3, 1, 4))
b_before = decode_attention(q, k[48:96], v[48:96], 0.5)
a_wanted = decode_attention(q, np.vstack([k[:48], new_k[None]]), np.vstack([v[:48], new_v[None]]), 0.5)

for slot, whose, run, right in ((48, "B", slice(48, 96), b_before), (96, "A", slice(0, 49), a_wanted)):
    k2, v2 = k.copy(), v.copy()
    k2[slot], v2[slot] = new_k, new_v
    got = decode_attention(q, k2[run], v2[run], 0.5)
    print(f"A's token in slot {slot}: {whose}'s attention should be {np.round(right[0], 3)}")
    print(f"{'it is':>47} {np.round(got[0], 3)}")

# %% [markdown] lang="en"
# In slot 48 the token destroys B's first one. In slot 96 nobody is harmed, but attention reads `k[0:49]` and finds B's
# token instead. Neither raises an error.
#
# [Lesson 06](lessons/06_fragmentation.ipynb) ended with requests in blocks that do not touch. Somebody has to remember
# where they are. The idea is that of an operating system, which gives memory to programs in pages.
#
# - The memory is cut into **blocks** of one size, say 16 slots. Any free block serves any request.
# - Each request has a **block table**: entry i is the block that holds tokens i × 16 to i × 16 + 15.
# - Block 0 is the **null block**, and no request ever gets it. In a batch all tables are equally long, so short ones end in
#   zeros.

# %% [markdown] lang="zh" en="6189ba6f"
# 放进槽位 48，这个 token 会覆盖 B 的第一个 token。放进槽位 96，谁的数据也没坏，可是 A 的注意力读的是 `k[0:49]`，末尾读到的是 B 的 token，不是自己的。两种情况都不报错。
#
# 在[第 06 课](lessons/06_fragmentation.ipynb)的结尾，一个请求可以放在互不相邻的几块里。那就得有人记住它们都在哪里。这个想法来自操作系统：它给程序分配内存时，就是一页一页地给。
#
# - 内存被切成大小相同的**块**，比如每块 16 个槽位。任何一个空闲块都能给任何请求用。
# - 每个请求有一张**块表**（block table）：表项 i 就是存放位置 i × 16 到 i × 16 + 15 上那些 token 的块。
# - 块 0 是**空块**（null block），永远不会分给任何请求。同一批里的表都一样长，短的就用 0 补齐。

# %% tags=["diagram"]
svg(*pictures.block_table())

# %% [markdown] lang="en"
# For the token at position $j$ and blocks of $B$ slots:
#
# $$\text{index} = j \;//\; B \qquad \text{offset} = j \;\%\; B \qquad \text{slot} = \text{table}[\text{index}] \times B + \text{offset}$$
#
# Guess first. Then move the sliders: the orange token is the same one above and below. What changes when `position` goes up
# by one? And at the end of a block?

# %% [markdown] lang="zh" en="deae47f6"
# 位置 $j$ 上的 token，每块 $B$ 个槽位：
#
# $$\text{index} = j \;//\; B \qquad \text{offset} = j \;\%\; B \qquad \text{slot} = \text{table}[\text{index}] \times B + \text{offset}$$
#
# 先猜一猜：每块 16 个槽位，块表是 [7, 3, 9]，位置 37 上的 token 在哪个槽位？再拖动滑块：上下两处橙色的是同一个 token。`position` 加一，什么会变？走到一块的末尾呢？

# %%
predict("07.slot", value=None)

# %%
panel(
    pictures.address,
    block_size={16: [1, 2, 4, 8, 16, 32]},
    context=(60, 1, 128),
    position=(37, 0, 127),
    height=4.4,
)

# %% [markdown] lang="en"
# ## Exercise 7.1 - find the slot
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 5 lines
#
# Write `slot_mapping(block_table, positions, block_size)`. `block_table` is an int32 array, and
# `positions` an int64 one. It returns the slot of each position, as int64, in the order given.
#
# - A position of -1 is **padding**. A GPU likes steps of a fixed number of rows, and the rows left over hold no token. Their
#   slot is -1 too.
# - int64 is no luxury. To find a slot in memory, a kernel multiplies it by heads × head size. int32 ends at 2,147,483,647.
#
# Small case: with table `[7, 3, 9]` and blocks of 16, positions `[0, 16, -1]` lie in slots `[112, 48, -1]`.

# %% [markdown] lang="zh" en="d8178960"
# ## 练习 7.1 - 找到槽位
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 5 行
#
# 写出 `slot_mapping(block_table, positions, block_size)`。`block_table` 是 int32 数组，`positions` 是 int64 数组。它返回每个位置的槽位，类型为 int64，顺序与输入相同。
#
# - 位置 -1 表示**填充**（padding）。GPU 喜欢每一步的行数都固定，多出来的行里没有 token，它们的槽位也是 -1。
# - 用 int64 不是浪费。kernel 要在内存里找到一个槽位，得用它乘以头数 × 头的大小。int32 最大只到 2,147,483,647。
#
# 小例子：表是 `[7, 3, 9]`，每块 16 个槽位，位置 `[0, 16, -1]` 的槽位是 `[112, 48, -1]`。


# %% exercise="slot_mapping"
def slot_mapping(block_table, positions, block_size):
    """The slot of each position, int64; -1 stays -1."""
    ### BEGIN SOLUTION
    slots = np.full(positions.shape, -1, np.int64)
    real = positions >= 0
    at = positions[real]
    slots[real] = block_table.astype(np.int64)[at // block_size] * block_size + at % block_size
    return slots
    ### END SOLUTION


# %% test="slot_mapping" points=1
slot_mapping = check("07.slot_mapping", slot_mapping)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# An array can be indexed with an array: `block_table[positions // block_size]` gives one block for each position.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Begin with `np.full(positions.shape, -1, np.int64)`. Make the table int64. Then fill in the slots where `positions >= 0`.
#
# </details>
# <details><summary>Hint 3: "padding stays -1" fails</summary>
#
# In Python `-1 // 16` is -1 and `-1 % 16` is 15. So padding finds the last slot of the last block.
#
# </details>
#
# ## Exercise 7.2 - write
#
# Difficulty 2/5 · importance 4/5 · 10 minutes · about 8 lines
#
# The K of all requests lie in one **pool** of shape [N blocks, B slots, K heads, D]. A second pool holds V. Write
# `write_kv(k, v, k_pool, v_pool, slots)`: token i of k and v, both [T, K, D], goes into slot `slots[i]`.
#
# - The pools change in place. A slot of -1 is skipped.
# - NumPy spreads one head over all heads without a word. So raise `ValueError` if k or v is not [T, K, D], with as many
#   tokens T as `slots` has. Do it before you store anything.

# %% [markdown] lang="zh" en="af920d55"
# <details><summary>提示 1：从哪里入手</summary>
#
# 数组可以用数组来索引：`block_table[positions // block_size]` 为每个位置给出一个块。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 从 `np.full(positions.shape, -1, np.int64)` 开始。把表转成 int64。然后只在 `positions >= 0` 的地方填入槽位。
#
# </details>
# <details><summary>提示 3：“padding stays -1”这一项不通过</summary>
#
# 在 Python 里，`-1 // 16` 是 -1，`-1 % 16` 是 15。于是填充会落到表里最后一块的最后一个槽位上。
#
# </details>
#
# ## 练习 7.2 - 写入
#
# 难度 2/5 · 重要性 4/5 · 10 分钟 · 大约 8 行
#
# 所有请求的 K 都放在一个**池**里，形状为 [N 个块, B 个槽位, K 个头, D]。V 放在另一个同样的池里。写出 `write_kv(k, v, k_pool, v_pool, slots)`：k 和 v 的形状都是 [T, K, D]，其中第 i 个 token 写进槽位 `slots[i]`。
#
# - 两个池都就地修改。槽位为 -1 的跳过。
# - NumPy 会一声不响地把一个头广播到所有头上。所以，k 或 v 的形状如果不是 [T, K, D]（T 等于 `slots` 的长度），就抛出 `ValueError`，而且要在存入任何内容之前。


# %% exercise="write_kv"
def write_kv(k, v, k_pool, v_pool, slots):
    """Store k[T, K, D] and v[T, K, D] in these slots of the pools [N, B, K, D]."""
    ### BEGIN SOLUTION
    for new in (k, v):
        if new.shape != (len(slots), *k_pool.shape[2:]):
            raise ValueError(f"{new.shape} is not {(len(slots), *k_pool.shape[2:])}")
    real = slots >= 0
    block, offset = np.divmod(slots[real], k_pool.shape[1])
    k_pool[block, offset] = k[real]
    v_pool[block, offset] = v[real]
    ### END SOLUTION


# %% test="write_kv" points=2
write_kv = check("07.write_kv", write_kv)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# A slot is block × B + offset. `np.divmod` takes it apart again.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Check the two shapes. Keep the slots that are not below 0, and the same rows of k and v. Then
# `k_pool[block, offset] = ...` stores all of them at once.
#
# </details>
# <details><summary>Hint 3: "a slot of -1 is skipped" fails</summary>
#
# NumPy takes -1 for the last one. And if you drop slots, drop the same rows of k and v.
#
# </details>
#
# Reading is the way back. `gather` copies the blocks of the table into one array, in order. Here is request A again: its
# blocks are scattered, all other slots hold NaN.

# %% [markdown] lang="zh" en="a33c9f4e"
# <details><summary>提示 1：从哪里入手</summary>
#
# 槽位等于块 × B + 块内偏移。`np.divmod` 能把它再拆开。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 检查两个形状。留下不小于 0 的槽位，以及 k 和 v 中对应的行。然后用 `k_pool[block, offset] = ...` 一次全部存好。
#
# </details>
# <details><summary>提示 3：“a slot of -1 is skipped”这一项不通过</summary>
#
# NumPy 把 -1 当成最后一个。还有，去掉了哪些槽位，就要去掉 k 和 v 里同样的行。
#
# </details>
#
# 读取就是反过来走一遍。`gather` 按顺序把表里的块拷贝到一个数组里。再看请求 A：它的块散在各处，其余槽位全是 NaN。

# %% tags=["claim-gather"]
block_size, table = 16, np.array([5, 2, 7, 1], np.int32)
k_pool, v_pool = np.full((2, 9, block_size, 1, 4), np.nan)  # 8 blocks, and block 0
a_k, a_v = np.vstack([k[:48], new_k[None]]), np.vstack([v[:48], new_v[None]])
slots = slot_mapping(table, np.arange(49), block_size)
write_kv(a_k, a_v, k_pool, v_pool, slots)
print("slots of tokens 0, 15, 16, 47, 48:", slots[[0, 15, 16, 47, 48]])
print("read back:", gather(k_pool, table, 49).shape, np.array_equal(gather(k_pool, table, 49), a_k))
got = decode_attention(q, gather(k_pool, table, 49), gather(v_pool, table, 49), 0.5)
print("A's attention:", np.round(got[0], 3), "as it should be")
assert np.array_equal(got, a_wanted)

# %% [markdown] lang="en"
# ## Exercise 7.3 - mend a pool
#
# Difficulty 2/5 · importance 3/5 · 5 minutes · about 5 lines
#
# This class keeps pool and tables together. Its own test writes one token, looks at K, and passes. Three things are wrong.
# Write a better `write` for one token; your last two functions can do most of it.
#
# ```python
# def write(self, name, position, key, value):
#     block = self.tables[name][position // self.block_size]
#     offset = position % self.block_size
#     self.keys[block, offset] = key
#     self.values[block, offset] = key
# ```
#
# - `key` and `value` are [heads, head size] each. Another shape is a `ValueError`.
# - A position below 0 is a `ValueError` too. After an error nothing has changed.
# - The table has room for the position. To make room comes later.

# %% [markdown] lang="zh" en="3d7e7a91"
# ## 练习 7.3 - 修好一个池
#
# 难度 2/5 · 重要性 3/5 · 5 分钟 · 大约 5 行
#
# 下面这个类把池和表放在一起。它自带的测试只写一个 token，只看 K，于是通过了。其实有三处错误。请为单个 token 写一个更好的 `write`；你刚写的两个函数能完成其中大部分。
#
# ```python
# def write(self, name, position, key, value):
#     block = self.tables[name][position // self.block_size]
#     offset = position % self.block_size
#     self.keys[block, offset] = key
#     self.values[block, offset] = key
# ```
#
# - `key` 和 `value` 的形状都是 [头数, 头的大小]。形状不对就抛出 `ValueError`。
# - 位置小于 0，也抛出 `ValueError`。报错之后，什么都没有改变。
# - 表里已经有放这个位置的块。怎样添加块，后面再说。


# %% exercise="MyPool"
class MyPool(PagedKVPool):
    """self.tables[name] is a list of blocks; self.keys and self.values are [blocks, block_size, heads, head size]."""

    def write(self, name, position, key, value):
        ### BEGIN SOLUTION
        if position < 0:
            raise ValueError(f"position {position} is below 0")
        slots = slot_mapping(np.array(self.tables[name], np.int32), np.array([position]), self.block_size)
        write_kv(np.asarray(key)[None], np.asarray(value)[None], self.keys, self.values, slots)
        ### END SOLUTION


# %% test="MyPool" points=2
MyPool = check("07.mend_pool", MyPool)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Read the last line of the broken `write` once more, slowly.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Refuse positions below 0. Then ask `slot_mapping` for the slot of one position, and give it to `write_kv`.
#
# </details>
# <details><summary>Hint 3: "a wrong shape" fails</summary>
#
# `write_kv` takes [T, K, D]. `np.asarray(key)[None]` puts T = 1 in front, whatever the shape is, and `write_kv` then refuses it.
#
# </details>
#
# ## One block at a time
#
# `gather` copies the whole context, in every layer, for every token. A kernel should read each block where it lies. But
# softmax divides by a sum over all tokens. How can it be done one block at a time?
#
# Keep three things: the largest score so far $m$, the sum of the weights $\ell$, and the weighted sum of the values $o$.
# When a block comes with scores $s_i$ and values $v_i$, the maximum may rise to $m'$. Then all that was added before is
# too large by the same factor. Shrink it:
#
# $$m' = \max(m, \max_i s_i) \qquad \ell' = \ell\, e^{m - m'} + \sum_i e^{s_i - m'} \qquad o' = o\, e^{m - m'} + \sum_i e^{s_i - m'}\, v_i$$
#
# In the end the answer is $o / \ell$. This is **online softmax** ([Milakov and Gimelshein,
# 2018](https://arxiv.org/abs/1805.02867)), and FlashAttention is built on it. With numbers:

# %% [markdown] lang="zh" en="0d1ae2fb"
# <details><summary>提示 1：从哪里入手</summary>
#
# 把有错的 `write` 的最后一行再慢慢读一遍。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先拒绝小于 0 的位置。再向 `slot_mapping` 要这一个位置的槽位，交给 `write_kv`。
#
# </details>
# <details><summary>提示 3：“a wrong shape”这一项不通过</summary>
#
# `write_kv` 要的是 [T, K, D]。不管原来是什么形状，`np.asarray(key)[None]` 都会在前面加上 T = 1，不对的形状就由 `write_kv` 拒绝。
#
# </details>
#
# ## 一次只看一块
#
# 每来一个 token，`gather` 在每一层都要把整个上下文拷贝一遍。kernel 应该直接在原处读每一块。可是 softmax 要除以一个对所有 token 求的和，怎么能一块一块地算呢？
#
# 只保留三样东西：目前最大的分数 $m$、权重之和 $\ell$，以及值的加权和 $o$。来了一块，它的分数是 $s_i$，值是 $v_i$，最大值可能升到 $m'$。这时，之前累加的一切都偏大了，而且偏大的倍数相同，把它们缩小就行：
#
# $$m' = \max(m, \max_i s_i) \qquad \ell' = \ell\, e^{m - m'} + \sum_i e^{s_i - m'} \qquad o' = o\, e^{m - m'} + \sum_i e^{s_i - m'}\, v_i$$
#
# 最后的答案是 $o / \ell$。这就是**在线 softmax**（online softmax，[Milakov 和 Gimelshein，2018](https://arxiv.org/abs/1805.02867)），FlashAttention 就建立在它之上。代入具体的数：

# %% tags=["claim-online"]
scores, values = [np.array([1.0, 3.0]), np.array([5.0, 2.0])], [np.array([10.0, 20.0]), np.array([30.0, 40.0])]
m, total, out = -np.inf, 0.0, 0.0
for s, x in zip(scores, values):
    new_m = max(m, s.max())
    shrink, weights = np.exp(m - new_m), np.exp(s - new_m)
    total, out, m = total * shrink + weights.sum(), out * shrink + weights @ x, new_m
    print(f"scores {s}: maximum {m}, old parts times {shrink:.4f}, sum {total:.4f}, values {out:.3f}")
whole = np.exp(np.concatenate(scores) - 5)
print(f"one block at a time {out / total:.6f}, all at once {whole @ np.concatenate(values) / whole.sum():.6f}")

# %% [markdown] lang="en"
# ## Exercise 7.4 - paged attention
#
# Difficulty 4/5 · importance 5/5 · 25 minutes · about 16 lines
#
# Write `paged_attention(q, k_pool, v_pool, block_table, context_len, scale)`: one query, [H, D], over the first
# `context_len` tokens. It returns [H, D].
#
# - Visit one block at a time. The check measures that you never hold the whole context.
# - Slots behind the context must not count, whatever they hold: here it is NaN. A NaN inside the context must show.
# - `context_len` says where to stop, and not a 0 in the table. Entries behind may be nonsense.
# - Query head h reads K/V head h // (H // K), as in [lesson 04](lessons/04_gqa_and_mla.ipynb). So `q.reshape(K, H // K, D)` has a row for each K/V head.
# - A context of 0 tokens gives zeros.

# %% [markdown] lang="zh" en="026dedad"
# ## 练习 7.4 - 分页注意力
#
# 难度 4/5 · 重要性 5/5 · 25 分钟 · 大约 16 行
#
# 写出 `paged_attention(q, k_pool, v_pool, block_table, context_len, scale)`：一个查询 [H, D]，看前 `context_len` 个 token，返回 [H, D]。
#
# - 一次只看一块。检查会测量内存，确认你从来没有一次持有整个上下文。
# - 上下文之后的槽位不能计入，不管里面是什么：这里是 NaN。而上下文里面的 NaN，必须在结果里看得出来。
# - 在哪里停，由 `context_len` 决定，而不是表里的 0。再往后的表项可能毫无意义。
# - 查询头 h 读第 h // (H // K) 个 K/V 头，和[第 04 课](lessons/04_gqa_and_mla.ipynb)一样。所以 `q.reshape(K, H // K, D)` 里，每个 K/V 头对应一行。
# - 上下文为 0 个 token 时，返回全零。


# %% exercise="paged_attention"
def paged_attention(q, k_pool, v_pool, block_table, context_len, scale):
    """q[H, D] over blocks of k_pool and v_pool[N, B, K, D] -> [H, D]."""
    ### BEGIN SOLUTION
    B, K, D = k_pool.shape[1:]
    queries = q.reshape(K, -1, D)  # [K, G, D]
    m = np.full((*queries.shape[:2], 1), -np.inf)
    total, out = np.zeros(m.shape), np.zeros(queries.shape)
    for i in range(-(-context_len // B)):
        n = min(B, context_len - i * B)
        k, v = k_pool[block_table[i], :n], v_pool[block_table[i], :n]  # [n, K, D]
        s = np.einsum("kgd,nkd->kgn", queries, k) * scale
        new_m = np.maximum(m, s.max(axis=2, keepdims=True))
        shrink, weights = np.exp(m - new_m), np.exp(s - new_m)
        total = total * shrink + weights.sum(axis=2, keepdims=True)
        out = out * shrink + np.einsum("kgn,nkd->kgd", weights, v)
        m = new_m
    return (out / np.where(total == 0, 1, total)).reshape(q.shape)
    ### END SOLUTION


# %% test="paged_attention" points=3
paged_attention = check("07.paged_attention", paged_attention)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Take the loop of the last cell. Its `s` becomes [K, G, n]: G query heads for each K/V head, n tokens of this block.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Block i has `n = min(B, context_len - i * B)` tokens. Slice `k_pool[block_table[i], :n]`. The scores are
# `np.einsum("kgd,nkd->kgn", queries, k) * scale`, and the values come in with `"kgn,nkd->kgd"`.
#
# </details>
# <details><summary>Hint 3: "unused slots do not count" fails</summary>
#
# A weight of 0 does not help, since 0 times NaN is NaN. Cut the slots off before you multiply.
#
# </details>
#
# Does it equal attention over one array? In float64, at every length around the end of a block:

# %% [markdown] lang="zh" en="bc6fdd70"
# <details><summary>提示 1：从哪里入手</summary>
#
# 沿用上一个单元格里的循环。那里的 `s` 现在变成 [K, G, n]：每个 K/V 头有 G 个查询头，这一块有 n 个 token。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 第 i 块有 `n = min(B, context_len - i * B)` 个 token。取切片 `k_pool[block_table[i], :n]`。分数是 `np.einsum("kgd,nkd->kgn", queries, k) * scale`，值则用 `"kgn,nkd->kgd"` 加进来。
#
# </details>
# <details><summary>提示 3：“unused slots do not count”这一项不通过</summary>
#
# 权重为 0 也没有用，因为 0 乘 NaN 还是 NaN。先切掉这些槽位，再做乘法。
#
# </details>
#
# 它和在一个完整的数组上算出的注意力相等吗？用 float64，把块末尾前后的各个长度都试一遍：

# %% tags=["claim-paged-dense"]
order = np.array([9, 4, 11, 2, 7, 1], np.int32)  # of 12 blocks
lengths, worst = (1, 15, 16, 17, 31, 32, 33, 96), 0.0
for length in lengths:
    pools = np.full((2, 13, 16, 2, 8), np.nan)
    k2, v2 = rng.normal(size=(2, length, 2, 8))
    q2 = rng.normal(size=(6, 8))
    write_kv(k2, v2, *pools, slot_mapping(order, np.arange(length), 16))
    got = paged_attention(q2, *pools, order, length, 8**-0.5)
    worst = max(worst, np.abs(got - decode_attention(q2, k2, v2, 8**-0.5)).max())
    unused = int(np.isnan(pools[0, :, :, 0, 0]).sum())
print(f"lengths {lengths}")
print(f"the last one among {unused} slots of NaN; all equal to 1e-12: {worst < 1e-12}")
assert worst < 1e-12

# %% [markdown] lang="en"
# ## The walk
#
# Who fills the table? A request starts with the blocks of its prompt. Then, for each token: if the last block has room,
# use its next slot. If it is full, take a free block and append it to the table. That is all.
#
# A free block must be found at once, among hundreds of thousands. `free.pop(0)` of a Python list looks harmless, but moves
# every other entry by one place. Which columns grow with the number of free blocks?

# %% [markdown] lang="zh" en="3da33688"
# ## 一步一步填表
#
# 表由谁来填？一个请求开始时，先拿到放提示词的块。之后每来一个 token：最后一块还有空位，就用下一个槽位；满了，就取一个空闲块，接在表的后面。就这么简单。
#
# 空闲块可能有几十万个，要能立刻找到一个。Python 列表的 `free.pop(0)` 看上去没什么，其实会把其余每一项都挪动一格。空闲块变多时，哪几列会跟着变大？


# %% tags=["claim-free-list", "nbval-ignore-output"]
def microseconds(n):
    """To take a block and give it back, in three ways."""
    as_list, as_deque, pool = list(range(n)), deque(range(n)), BlockPool(n)
    ways = (
        lambda: as_list.append(as_list.pop(0)),
        lambda: as_deque.append(as_deque.popleft()),
        lambda: pool.release(pool.allocate(1)),
    )
    return [1e6 * min(timeit(way, number=500) for _ in range(3)) / 500 for way in ways]


print(f"{'free blocks':>12}{'list.pop(0)':>14}{'deque':>9}{'BlockPool':>12}   in microseconds")
for n in (10_000, 100_000, 400_000):
    in_list, in_deque, in_pool = microseconds(n)
    print(f"{n:>12,}{in_list:>14.2f}{in_deque:>9.2f}{in_pool:>12.2f}")

# %% [markdown] lang="en"
# Only the list's. The engine's `BlockPool` is a linked list.
#
# ## Exercise 7.5 - let the table grow
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 3 lines
#
# `KVCacheManager` is the engine's own. Its `allocate` (for a prompt) and its `append` (for each token) call `grow` to get
# blocks. Write that method.
#
# - After `grow(request, num_tokens)` the list `request.block_table` has room for that many tokens in all, and no block more.
# - Append to the list in place. Room that is there is kept, even if fewer tokens are asked for.
# - `self.pool.allocate(n)` returns n blocks, in any order of numbers. If it lacks some, it raises `NoFreeBlocksError` (a
#   `MemoryError`) and has changed nothing. The same must hold for `grow`.
# - `self.block_size` is B.

# %% [markdown] lang="zh" en="953f9f50"
# 只有列表那一列。引擎的 `BlockPool` 用的是链表。
#
# ## 练习 7.5 - 让表变长
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 3 行
#
# `KVCacheManager` 是引擎自己的类。它的 `allocate`（用于提示词）和 `append`（用于每个 token）都调用 `grow` 来取块。请写出这个方法。
#
# - 调用 `grow(request, num_tokens)` 之后，列表 `request.block_table` 总共放得下这么多 token，而且一块也不多。
# - 就地追加到列表后面。已经有的空间要保留，即使这次要的更少。
# - `self.pool.allocate(n)` 返回 n 个块，编号不一定按顺序。块不够时，它抛出 `NoFreeBlocksError`（一种 `MemoryError`），并且什么都没有改变。`grow` 也要做到这一点。
# - `self.block_size` 就是 B。


# %% exercise="MyManager"
class MyManager(KVCacheManager):
    """The engine's manager, with your way to grow a table."""

    def grow(self, request, num_tokens):
        ### BEGIN SOLUTION
        missing = -(-num_tokens // self.block_size) - len(request.block_table)
        if missing > 0:
            request.block_table += self.pool.allocate(missing)
        ### END SOLUTION


# %% test="MyManager" points=2
MyManager = check("07.grow", MyManager)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `-(-n // B)` is n / B, rounded up: the blocks that n tokens need.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Needed less held is missing. If it is above 0, allocate that many in one call, and `+=` them to the table.
#
# </details>
# <details><summary>Hint 3: "nothing has changed" fails</summary>
#
# A loop that allocates one at a time keeps what it took when it stops half-way. Others need those blocks.
#
# </details>
#
# ## In the engine
#
# Now all your pieces run together, in the engine, with the model tiny-gqa. Your manager hands out blocks of 4. Your
# `write_kv` stores and your `paged_attention` reads, in each layer. The result is compared with one request at a time
# over plain arrays.

# %% [markdown] lang="zh" en="f7135802"
# <details><summary>提示 1：从哪里入手</summary>
#
# `-(-n // B)` 是 n / B 向上取整：n 个 token 需要的块数。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 需要的减去已有的，就是缺的。如果大于 0，就一次分配这么多，再用 `+=` 接到表上。
#
# </details>
# <details><summary>提示 3：“nothing has changed”这一项不通过</summary>
#
# 一块一块地分配，中途停下时，已经拿到的就留在手里了。别人还需要这些块。
#
# </details>
#
# ## 放进引擎
#
# 现在，你写的各个部分一起在引擎里运行，模型是 tiny-gqa。你的管理器分配块，每块 4 个槽位。在每一层，由你的 `write_kv` 写入，由你的 `paged_attention` 读取。结果再和另一种做法比较：一次只跑一个请求，K 和 V 放在普通数组里。

# %% tags=["claim-engine"]
tiny = load_model("tiny-gqa", backend="numpy")
checked = 0


class WatchedBackend(NumpyBackend):
    """Compares the slots of every step with yours."""

    def execute(self, batch):
        global checked
        for row, (first, last) in enumerate(pairwise(batch.query_start_loc)):
            mine = slot_mapping(batch.block_tables[row], batch.positions[first:last], self.block_size)
            assert np.array_equal(mine, batch.slot_mapping[first:last])
            checked += len(mine)
        return super().execute(batch)


prompts = ["The young lady", "Emma was"]
params = SamplingParams(temperature=0, max_tokens=15, ignore_eos=True)
backend = WatchedBackend(tiny.model, write_kv=write_kv, paged_attention=paged_attention)
config = EngineConfig(num_blocks=24, block_size=4, enable_prefix_caching=False)
engine = LLMEngine(config, backend, tokenizer=tiny.tokenizer, kv_manager=MyManager)
for prompt in prompts:
    engine.add_request(prompt, tiny.tokenizer.encode(prompt), params)
done, tables = {}, {}
while engine.has_unfinished_requests():
    for output in engine.step():
        done[output.request_id] = output.outputs[0]
    tables |= {r.request_id: list(r.block_table) for r in engine.scheduler.requests.values() if r.block_table}
    engine.check_invariants()
for prompt, alone in zip(prompts, LLM(tiny, cache="contiguous").generate(prompts, params, progress=False)):
    print(f"blocks {tables[prompt]}\n  {prompt}{done[prompt].text}")
    assert done[prompt].token_ids == alone.outputs[0].token_ids
print(f"the tokens are those over plain arrays; {checked} slots, all where yours are")
print(f"{engine.stats().num_free_blocks} of 24 blocks are free again")

# %% [markdown] lang="en"
# The blocks of the two requests take turns, and the text does not know. Watch such tables grow: three requests, blocks of 4,
# your manager again. Put the focus on the slider and press the arrow keys. At step 3 A's blocks 1 and 2 are full. Its
# ninth token opens block 8, since others have what lies between. When a request ends, its last block is freed first. So
# freed blocks wait in reverse. Formula, engine and picture count the same blocks.

# %% [markdown] lang="zh" en="e8f987e1"
# 两个请求的块交错在一起，文本却不受任何影响。来看这样的表怎样变长：三个请求，每块 4 个槽位，还是用你的管理器。先选中滑块，再按方向键。第 3 步，A 的块 1 和块 2 满了。它的第九个 token 用上了块 8，因为中间的块都归别人了。一个请求结束时，最后一块最先释放，所以释放的块是倒着排队的。公式、引擎和图，数出来的块数一样。

# %%
engine = LLMEngine(
    EngineConfig(num_blocks=10, block_size=4, enable_prefix_caching=False),
    AuditBackend(),
    kv_manager=MyManager,
    record=True,
)
arrivals = [Arrival("a", 0, 6, 7), Arrival("b", 0, 3, 8), Arrival("c", 2, 9, 4)]  # name, step, prompt, answer
replay(arrivals, engine)
film(engine)

# %% tags=["claim-film"]
frame(engine, 3)

# %% tags=["claim-three-ways"]
shown = next(one for one in frames(engine) if one.step == 3)
event = next(event for event in engine.film if event["kind"] == "step" and event["step"] == 3)
stored = [sequence["num_computed_tokens"] for sequence in event["sequences"]]
by_formula = [-(-tokens // 4) for tokens in stored]
print(
    f"formula: {stored} tokens take {by_formula} blocks, {sum(by_formula) * 4} slots; {paged_utilization(stored, 4)} is used"
)
print(f"engine:  {10 - len(event['free_blocks'])} blocks are not free, {sum(stored)} tokens are in them")
print(
    f"picture: {[len(table.blocks) for table in shown.tables]} blocks, {shown.counters.live} of {shown.counters.allocated} slots"
)
assert by_formula == [len(table.blocks) for table in shown.tables]
assert sum(by_formula) == 10 - len(event["free_blocks"])
assert f"allocated {sum(by_formula) * 4}, live {sum(stored)}" in frame(engine, 3).words

# %% [markdown] lang="en"
# ## Price one: the end of a block
#
# "Paging has zero waste", people say. The last block of a request is rarely full. It loses at most $B - 1$ slots, and
# $(B - 1) / 2$ on average. How long must a request be until that hardly counts?

# %% [markdown] lang="zh" en="611c827b"
# ## 代价一：最后一块的末尾
#
# 有人说“分页零浪费”。可是一个请求的最后一块很少是满的。它最多浪费 $B - 1$ 个槽位，平均 $(B - 1) / 2$ 个。一个请求要多长，这点浪费才不算什么？

# %%
predict("07.tokens_96", value=None)

# %% tags=["claim-last-block"]
trace = load_trace("synthetic_azure_conv.csv")
stored = [request.num_prompt_tokens + request.num_output_tokens - 1 for request in trace]  # the last token has no K/V
for B in (16, 32):
    mean, worst = (B - 1) / 2, B - 1
    print(f"blocks of {B}: {mean} slots lost on average, {worst} at most; 96% are used")
    print(
        f"  from {24 * mean:.0f} tokens on, on average; by the same formula from {24 * worst} on, for certain", end=""
    )
    short = max(length for length in range(1, 24 * worst) if paged_utilization([length], B) < 0.96)
    print(f" (all tried: {short + 1})")
print(f"17 tokens in blocks of 16: {float(paged_utilization([17], 16)):.1%} used")
idle = sum(-length % 16 for length in stored)
per_token = kv_bytes_per_token(get_model("llama-3-8b"))
print(f"{len(stored):,} requests of the trace, blocks of 16: {idle:,} slots idle,", end=" ")
print(f"{float(1 - paged_utilization(stored, 16)):.2%}")
print(f"for Llama-3-8B, {per_token:,} B a token: {idle * per_token:,} B", end="")
print(f" = {idle * per_token / 1e9:.2f} GB = {idle * per_token / 2**30:.2f} GiB")
assert idle > 0
picture(pictures.tails, lengths=stored, block_size=16, height=2.6)

# %% [markdown] lang="en"
# So "zero" is wrong, by 0.98 GB if all requests of this synthetic trace were there at once. It is small.
#
# ## Price two: the table
#
# Then why not blocks of 1 slot?

# %% [markdown] lang="zh" en="ded69fdf"
# 所以“零”是错的：如果这份合成的请求记录里，所有请求同时都在内存里，浪费就是 0.98 GB。这并不多。
#
# ## 代价二：表
#
# 那为什么不用只有 1 个槽位的块？先猜一猜：表项是 int32，每块 16 个槽位，8,192 个 token 的请求，它的表有多大？

# %%
predict("07.table_bytes", value=None)

# %% tags=["claim-table-size"]
print(f"{'block size':>10}{'idle slots a request':>22}{'idle':>9}{'entries':>9}{'bytes':>8} for 8,192 tokens")
for B in (1, 4, 16, 64, 256):
    mean, share = sum(-length % B for length in stored) / len(stored), 1 - paged_utilization(stored, B)
    print(f"{B:>10}{mean:>22.2f}{float(share):>9.2%}{8192 // B:>9,}{4 * 8192 // B:>8,}")
print(f"K and V of 8,192 tokens: {8192 * per_token / 2**30:.0f} GiB")

# %% [markdown] lang="en"
# A larger table is a few kB beside 1 GiB of K and V. What counts is that the reading is cut into pieces. Measure it: one query
# over 4,096 tokens. "gather" copies the blocks, then attends over one array. "online" is your function. The unit of each is
# the same function over one block of 4,096, so that only the cutting counts.

# %% [markdown] lang="zh" en="bdee077b"
# 表大一点，也不过几 kB，而 K 和 V 有 1 GiB。真正要紧的是，读取被切碎了。来测一测：一个查询，4,096 个 token。gather 先把各块拷贝到一起，再在一个数组上算注意力；online 是你的函数。两者各自以“同一个函数、全部 4,096 个 token 放在一块里”的用时为 1，这样比较的就只有切碎的影响。

# %% tags=["claim-block-size", "nbval-ignore-output"]
S, H, K, D = 4096, 16, 4, 64
k3, v3 = rng.normal(size=(2, S, K, D))
q3 = rng.normal(size=(H, D))
in_one_piece = decode_attention(q3, k3, v3, D**-0.5)


def seconds(B):
    """With blocks of B, scattered: to gather and attend; to attend block by block."""
    blocks = rng.permutation(S // B).astype(np.int32)
    pools = [np.empty((S // B, B, K, D)) for _ in "kv"]
    write_kv(k3, v3, *pools, slot_mapping(blocks, np.arange(S), B))
    assert np.allclose(paged_attention(q3, *pools, blocks, S, D**-0.5), in_one_piece, rtol=0, atol=1e-12)
    return (
        best_seconds(lambda: decode_attention(q3, *(gather(pool, blocks, S) for pool in pools), D**-0.5)),
        best_seconds(lambda: paged_attention(q3, *pools, blocks, S, D**-0.5)),
    )


whole = seconds(S)
print(f"one block of {S:,}: gather {1e3 * whole[0]:.1f} ms, online {1e3 * whole[1]:.1f} ms; both count as 1.00 below")
print(f"{'block size':>10}{'gather':>9}{'online':>9}{'idle slots a request':>22}")
for B in (4, 16, 64, 256, 1024):
    gathered, online = (one / base for one, base in zip(seconds(B), whole))
    print(f"{B:>10}{gathered:>9.2f}{online:>9.2f}{sum(-length % B for length in stored) / len(stored):>22.2f}")

# %% [markdown] lang="en" tags=["claim-published"]
# "gather" copies everything in any case, so it hardly changes. "online" takes a turn of a Python loop for each block, so
# small ones are slow. A ratio below 1 is no error: the unit, one block of 4,096, is not always the quickest. A GPU kernel
# has no such loop. How much a small block costs there is the kernel's affair: SGLang's default is 1, and the next table
# has a kernel that is slower with 128 than with 16. What always holds is the last column. 16 is a compromise.
#
# ## Price three: the kernel
#
# What did others measure? Reported by the authors named, in 2023 and 2024:
#
# | reported | what was measured |
# |---|---|
# | 2 to 4 times | throughput of vLLM over FasterTransformer **and** Orca, at equal latency ([paper](https://arxiv.org/abs/2309.06180), 2023) |
# | up to 22 times | request rate of vLLM over FasterTransformer (same paper) |
# | 1.7 to 2.7 times | over Orca (Oracle), which knows all lengths; 2.7 to 8 times over Orca (Max) (same paper) |
# | up to 24 times | throughput over Hugging Face Transformers, and 3.5 times over TGI ([blog](https://blog.vllm.ai/2023/06/20/vllm.html), June 2023) |
# | 20 to 26% | longer latency of the paper's **attention kernel**, against FasterTransformer's |
# | up to 37% | slower prefill kernel of FlashAttention-2 when paged, and decode up to 12% ([vAttention](https://arxiv.org/abs/2405.04437), 2024) |
# | up to 42% | slower prefill kernel of FlashInfer when paged (vAttention) |
# | up to 2.8 times | latency of vLLM's own decode kernel, against FlashAttention-2's (vAttention) |
# | up to 1.9 times | latency of vLLM's decode kernel with blocks of 128, against 16 (vAttention) |
#
# People quote such rows as "paging makes a server slower by a third". But the last five are times of one **kernel**, most
# of them its worst case, and 37% and 12% hold for FlashAttention-2 only. And attention is only a part of a step.

# %% [markdown] lang="zh" en="8c962740"
# gather 反正要全部拷贝，所以几乎不变。online 每遇到一块，就要执行一轮 Python 循环，所以块小就慢。比值小于 1 并没有错：作为单位的，是只有一块、这块有 4,096 个槽位的情形，它不一定最快。GPU 的 kernel 里没有这样的循环，小块在那里有多慢，要看 kernel 怎么写：SGLang 默认的大小就是 1；而下一张表里有一个 kernel，块大小为 128 时比 16 时还慢。始终成立的是最后一列。16 是一种折中。
#
# ## 代价三：kernel
#
# 别人测出来是多少？下面是表中注明的作者在 2023 年和 2024 年报告的数字：
#
# | 报告的数字 | 测的是什么 |
# |---|---|
# | 2 到 4 倍 | 延迟相同时，vLLM 的吞吐相对于 FasterTransformer **和** Orca（[论文](https://arxiv.org/abs/2309.06180)，2023） |
# | 最多 22 倍 | vLLM 的请求率相对于 FasterTransformer（同一篇论文） |
# | 1.7 到 2.7 倍 | 相对于事先知道所有长度的 Orca (Oracle)；相对于 Orca (Max) 是 2.7 到 8 倍（同一篇论文） |
# | 最多 24 倍 | 吞吐相对于 Hugging Face Transformers；相对于 TGI 是 3.5 倍（[博客](https://blog.vllm.ai/2023/06/20/vllm.html)，2023 年 6 月） |
# | 20 到 26% | 论文里**注意力 kernel** 的延迟比 FasterTransformer 的高多少 |
# | 最多 37% | FlashAttention-2 改成分页后，预填充 kernel 慢多少；解码最多慢 12%（[vAttention](https://arxiv.org/abs/2405.04437)，2024） |
# | 最多 42% | FlashInfer 改成分页后，预填充 kernel 慢多少（vAttention） |
# | 最多 2.8 倍 | vLLM 自己的解码 kernel 的延迟，相对于 FlashAttention-2 的（vAttention） |
# | 最多 1.9 倍 | vLLM 的解码 kernel，块大小为 128 时的延迟相对于 16 时（vAttention） |
#
# 常有人引用这样的数字，说“分页让服务器慢了三分之一”。可是后五行都是单个 **kernel** 的用时，多半还是最坏的情况；37% 和 12% 只适用于 FlashAttention-2。况且，注意力只是一步里的一部分。那么 kernel 慢了，整步会慢多少？先猜一猜。

# %%
predict("07.slower_step", value=None)

# %% tags=["claim-step-share"]
llama, gpu = get_model("llama-3-8b"), get_gpu("h100-sxm")
N = param_breakdown(llama).total  # of 2 bytes each
print("Llama-3-8B on an H100, least times as in lesson 03")
print("decode, if the kernel takes 26% longer")
print("  requests  tokens of each  share of the step  the step is longer by")
for B, S in ((1, 1024), (32, 256), (32, 1024), (32, 4096), (64, 4096)):
    step = decode_step_time_additive(B, per_token * S, 2 * N, gpu.memory_bandwidth, N, gpu.bf16_flops, 1)
    share = float(step.kv / step.total)
    print(f"  {B:>8}{S:>16,}{share:>19.1%}{0.26 * share:>23.1%}")
print("prefill in FLOPs, if the kernel takes 37% longer")
shape = llama.num_hidden_layers, llama.num_attention_heads, llama.head_dim
for S in (1024, 8192, 32_768):
    share = 1 - 2 * N * S / prefill_flops(N, S, *shape)
    print(f"  a prompt of    {S:>6,} tokens: {share:6.1%} of the work, {0.37 * share:6.1%} longer")

# %% [markdown] lang="en"
# A kernel overhead becomes a step overhead only where attention is nearly the whole step: long contexts, large batches.
#
# ## Exercise 7.6 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 20 minutes · about 20 lines
#
# Your function is given `make`, and `make(6, 4)` is a new cache of 6 blocks of 4. Raise AssertionError if its tables are broken. Ten
# broken ones are waiting.
#
# - `a = CacheUser("a", [1, 2, 3])` is a request, with a `block_table`. `start(cache, a)` admits it, with room for its tokens;
#   `start(cache, a, 0)` with none.
# - `compute(cache, a)` makes room for all tokens not yet stored, at once, and stores them. `decode(cache, a, token)` adds one token.
# - `cache.free(a)` gives its blocks back, and its table is empty then.
# - `cache.pool` has `num_free`, `allocate(n)`, `release(blocks)` and `ref_count(block)`. It raises `MemoryError` if blocks are
#   lacking, and `ValueError` for a second release and for a number that is no block: 0 is none. Then nothing has changed.
# - Which number a block has is the pool's business.
# - A cache knows a request by its name, even if it was refused. Take a new name for each `CacheUser`.
#
# One of the ten. `compute` calls `append` with all tokens that are left:
#
# ```python
# def append(self, request, n=1):
#     return super().append(request, min(n, self.block_size))
# ```

# %% [markdown] lang="zh" en="442a5f2f"
# 只有当注意力几乎占满整步时，kernel 的开销才会变成整步的开销：上下文很长，批也很大。
#
# ## 练习 7.6 - 找出 bug
#
# 难度 4/5 · 重要性 4/5 · 20 分钟 · 大约 20 行
#
# 你的函数会拿到 `make`，`make(6, 4)` 是一个新的缓存，有 6 个块，每块 4 个槽位。如果它的表是坏的，就抛出 AssertionError。有十个坏的在等着你。
#
# - `a = CacheUser("a", [1, 2, 3])` 是一个请求，它有 `block_table`。`start(cache, a)` 接纳它，并为它的 token 留出空间；`start(cache, a, 0)` 则不留空间。
# - `compute(cache, a)` 为所有还没有存下的 token 一次腾出空间，并把它们存好。`decode(cache, a, token)` 再加一个 token。
# - `cache.free(a)` 归还它的块，之后它的表是空的。
# - `cache.pool` 有 `num_free`、`allocate(n)`、`release(blocks)` 和 `ref_count(block)`。块不够时，它抛出 `MemoryError`；重复归还，或者给的编号不是块（0 也不算块），就抛出 `ValueError`。出错之后，什么都没有改变。
# - 一个块的编号是几，由池决定。
# - 缓存按名字认请求，被拒绝过的也一样。每个 `CacheUser` 都要用一个新名字。
#
# 下面是十个中的一个。`compute` 会带着所有剩下的 token 调用 `append`：
#
# ```python
# def append(self, request, n=1):
#     return super().append(request, min(n, self.block_size))
# ```


# %% exercise="my_tests"
def my_tests(make):
    """Raise AssertionError if caches made by make(num_blocks, block_size) have broken block tables."""
    ### BEGIN SOLUTION
    cache, a, b = make(6, 4), CacheUser("a", []), CacheUser("b", range(9))
    start(cache, a)
    for length in range(1, 13):
        decode(cache, a, length)
        assert len(a.block_table) == -(-length // 4)
    start(cache, b, 0)
    compute(cache, b)  # nine at once
    assert len(b.block_table) == 3
    assert len({*a.block_table, *b.block_table}) == 6
    assert refuses(MemoryError, decode, cache, a, 13)
    cache.free(b)
    assert b.block_table == []
    assert cache.pool.num_free == 3
    blocks = cache.pool.allocate(2)
    assert refuses(MemoryError, cache.pool.allocate, 2)
    assert cache.pool.num_free == 1
    cache.pool.release(blocks)
    assert refuses(ValueError, cache.pool.release, blocks)
    for number in (-1, 0):
        assert refuses(ValueError, cache.pool.ref_count, number)
    ### END SOLUTION


def refuses(kind, call, *arguments):
    """Whether the call raises this kind of error."""
    try:
        call(*arguments)
    except kind:
        return True
    return False


# %% test="my_tests" points=3 tags=["claim-find-the-bugs"]
my_tests = bugs_caught(my_tests, "07")

# %% [markdown] lang="en" tags=["self-check"]
# <details><summary>Hint 1: where to look</summary>
#
# For each bug that got away, the check says where to look. `refuses(MemoryError, cache.pool.allocate, 7)` is there for
# you.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Let an empty request grow token by token, and count its blocks each time. Start a second one with `start(cache, b, 0)`, and
# let `compute(cache, b)` store nine tokens at once. Then ask for too much, free, and free again.
#
# </details>
# <details><summary>Hint 3: a right cache is refused</summary>
#
# Compare numbers of blocks, not block numbers. To see that nobody shares, look at the size of a set.
#
# </details>
#
# ## Check yourself
#
# When does paging gain nothing? One case: 14 requests of 112 tokens each, reserved exactly. And two numbers of your own:

# %% [markdown] lang="zh" en="1aa4b53d"
# <details><summary>提示 1：从哪里入手</summary>
#
# 对每个漏网的 bug，检查都会说明该看哪里。`refuses(MemoryError, cache.pool.allocate, 7)` 可以直接用。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 从一个空请求开始，每次增加一个 token，都数一数它有几块。再用 `start(cache, b, 0)` 开始第二个请求，让 `compute(cache, b)` 一次存下九个 token。然后试试申请得太多、释放、再释放一次。
#
# </details>
# <details><summary>提示 3：正确的缓存被拒绝了</summary>
#
# 要比较块的数量，不要比较块的编号。想知道有没有共用，看集合的大小就行。
#
# </details>
#
# ## 自测
#
# 什么时候分页毫无好处？举一个例子：14 个请求，各有 112 个 token，预留得分毫不差。再自己算两个数：提示词 30 个 token，回答 35 个，每块 16 个槽位，请求结束时占几块？一个池有 100 个可用的块，每个请求存 100 个 token，能同时运行几个？

# %% tags=["self-check", "claim-counter-example"]
print(f"14 requests of 112 tokens: {14 * 112:,} slots in runs, {14 * -(-112 // 16) * 16:,} in blocks of 16")
print(f"1 token in a block of 16: {float(paged_utilization([1], 16)):.2%} used; in a run of 1: all of it")
predict("07.blocks", value=None)
predict("07.fit", value=None)

# %% [markdown] lang="en" tags=["in-production"]
# ## In production
#
# Names as of 2026, in the main branches of vLLM and SGLang.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | slots of a block | `--block-size` | `--page-size`, by default 1 |
# | the table of a request | `BlockTable`, a row of blocks | a row of `ReqToTokenPool`, with a slot for each token |
# | where new tokens go | `slot_mapping` | `out_cache_loc` |
# | who hands out blocks | `BlockPool` | `TokenToKVPoolAllocator` |
# | padding | slot -1, null block 0 | a dummy page |
#
# SGLang's table has an entry for each token, whatever the page size: the row for blocks of 1 above.

# %% [markdown] lang="zh" en="8707de67"
# ## 在生产系统中
#
# 名称以 2026 年 vLLM 和 SGLang 的 main 分支为准。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | 每块的槽位数 | `--block-size` | `--page-size`，默认为 1 |
# | 一个请求的表 | `BlockTable`，一行，每项是一个块 | `ReqToTokenPool` 的一行，每个 token 对应一个槽位 |
# | 新 token 写到哪里 | `slot_mapping` | `out_cache_loc` |
# | 谁来分配块 | `BlockPool` | `TokenToKVPoolAllocator` |
# | 填充 | 槽位 -1，空块 0 | 一个占位的页 |
#
# 无论页有多大，SGLang 的表都是每个 token 一项：也就是上面块大小为 1 的那一行。

# %% [markdown] lang="en" tags=["limits", "question"]
# > **What this does not show**
# >
# > - GPU kernels. Lesson 10 writes one. The ratios that you measured are those of NumPy on a CPU.
# > - How today's kernels do. The published figures are from 2023 and 2024.
# > - Sharing. A block can stand in two tables: lesson 08.
# > - Prompts in one call. Your attention takes one query at a time, so the engine called it once for each token of a prompt.
#
# ## Questions that people ask
#
# <details><summary>Does paged attention compute something else than attention?</summary>
#
# No. It is the same sum in another order. In float64 the difference is below 1e-12.
#
# </details>
# <details><summary>Does every layer have a table of its own?</summary>
#
# No. All layers store a token at the same slot, each in a pool of its own. One table serves them all.
#
# </details>

# %% [markdown] lang="zh" en="534f598b"
# > **这一课没有说明的事**
# >
# > - GPU 的 kernel。第 10 课会写一个。你测出的比值，是 NumPy 在 CPU 上的。
# > - 现在的 kernel 怎么样。引用的数字是 2023 年和 2024 年的。
# > - 共享。一个块可以同时出现在两张表里：见第 08 课。
# > - 一次调用处理整个提示词。你的注意力一次只接受一个查询，所以提示词有几个 token，引擎就调用几次。
#
# ## 常见问题
#
# <details><summary>分页注意力算出来的，和普通注意力有什么不同吗？</summary>
#
# 没有。是同一个和，只是换了相加的顺序。在 float64 下，差别小于 1e-12。
#
# </details>
# <details><summary>每一层都有自己的表吗？</summary>
#
# 没有。一个 token 在所有层里都存放在同一个槽位，只是每层各有一个池。一张表就够了。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A block table turns a position into a slot: table[j // B] × B + j % B. So a request grows one block at a time, anywhere.
# - Online softmax needs one block at a time: shrink what you have by the change of the maximum, then add.
# - The price: at most B - 1 slots a request, a table, and a slower kernel, which is not a slower step by as much.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | block table | 块表 | "page table" | for each block of a request, where it lies in the pool |
# | slot mapping | 槽位映射 | "cache locations" | the slot of each new token of a step |
# | null block | 空块 | "block 0" | the entry that pads short tables |
# | online softmax | 在线 softmax | "the flash trick" | softmax in pieces, with a running maximum and sum |
# | free list | 空闲链表 | "the pool" | blocks that nobody holds, first in line at the front |
#
# **Open exercises.** *Easy:* give `paged_attention` a `window`, and skip the blocks before it. *Medium:* split a context in
# two, run both halves apart, and join them with their maxima and sums. *Research:* which block size is best on your
# machine, if you count idle slots and time in one number?
#
# **Back:** [06 · Fragmentation](lessons/06_fragmentation.ipynb) · **Next:** [08 · Copy-on-write](lessons/08_copy_on_write.ipynb)

# %% [markdown] lang="zh" en="89361640"
# ## 三句话总结
#
# - 块表把位置变成槽位：table[j // B] × B + j % B。所以一个请求可以在任何地方、一块一块地变长。
# - 在线 softmax 一次只需要一块：最大值变了多少，就把已有的缩小多少，再加上新的。
# - 代价：每个请求最多浪费 B - 1 个槽位，还要一张表，kernel 也更慢；但整步并不会慢那么多。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | 块表 | block table | “页表” | 一个请求的每一块在池里的哪个位置 |
# | 槽位映射 | slot mapping | “缓存位置” | 一步里每个新 token 的槽位 |
# | 空块 | null block | “块 0” | 给短表补齐用的表项 |
# | 在线 softmax | online softmax | “flash 的诀窍” | 分段计算的 softmax，边走边记最大值和总和 |
# | 空闲链表 | free list | “池” | 没有人持有的块，排在最前面的先用 |
#
# **开放练习。** *简单*：给 `paged_attention` 加上 `window`，跳过窗口之前的块。*中等*：把上下文分成两半，分别计算，再用各自的最大值和总和合并。*研究*：如果把空着的槽位和用时合成一个数，在你的机器上，多大的块最好？
#
# **上一课：** [06 · 内存碎片](lessons/06_fragmentation.ipynb) · **下一课：** [08 · 写时复制](lessons/08_copy_on_write.ipynb)
