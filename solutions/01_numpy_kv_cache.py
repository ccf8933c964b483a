# %% [markdown] lang="en" tags=["goals"]
# # 01 · A KV cache in NumPy
#
# **Compute K and V once, keep them, and pay one token of work per token.**
#
# 60 to 90 minutes · NumPy, no GPU · after lesson 00
#
# After this lesson you can
#
# - write causal attention without loops, and show that past K and V never change;
# - write a KV cache and the loop that uses it, and run the real engine on both;
# - count what a cache saves and what it costs: token-forwards, scores, bytes.

# %% [markdown] lang="zh" en="9a606d00"
# # 01 · 用 NumPy 写 KV Cache
#
# **K 和 V 只算一次，算完就留着：此后每个 token 只需付出一个 token 的计算量。**
#
# 60 到 90 分钟 · 只用 NumPy，不需要 GPU · 先学第 00 课
#
# 学完这一课，你能够：
#
# - 不用循环实现因果注意力，并证明已有的 K 和 V 永远不变；
# - 写出 KV Cache 和使用它的生成循环，并让真正的引擎跑在这两样东西上；
# - 算清楚缓存省了什么、花了什么：token 前向次数、注意力分数、字节数。

# %%
import sys
import time

import numpy as np

from mini_engine import LLM, SamplingParams
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.panels import p01_kv_cache as pictures
from mini_engine.models import load_model

tiny = load_model("tiny-gqa", backend="numpy")
model, tokenizer, spec = tiny.model, tiny.tokenizer, tiny.spec

# %% [markdown] lang="en"
# ## The pain
#
# Here is the loop from lesson 00 on the small model, with a meter. Each pass runs the whole sequence. Look at the last
# column: to write 16 tokens, the model runs more than ten times as many.
#
# `model.forward(tokens, positions, attend, rows)` is one pass. Each token comes with its position in the text, so the
# two lists are equally long. In each layer the model calls your `attend(layer, q, k, v)`. Back come the logits of the rows
# you ask for, or of all rows if you leave `rows` out.

# %% [markdown] lang="zh" en="bb8ca527"
# ## 痛点
#
# 还是第 00 课的那个循环，用的还是那个小模型，只是多装了一个计数器。每一轮前向都要把整个序列重跑一遍。看最后一列：为了写 16 个 token，模型跑过的 token 数是它的十倍还多。
#
# `model.forward(tokens, positions, attend, rows)` 就是一轮前向。每个 token 都带着它在文本里的位置，所以前两个列表一样长。每一层里，模型都会调用你给的 `attend(layer, q, k, v)`。返回的是你指定的那些行的 logits；不写 `rows`，就返回所有行的 logits。

# %%
from mini_engine.attention import causal_attention as engines_attention

scale = spec.head_dim**-0.5


def whole_sequence(layer, q, k, v):
    """What the model calls in each layer when nothing is kept: attend to the tokens of this pass."""
    return engines_attention(q, k, v, scale)


prompt = tokenizer.encode("The young lady")
tokens, ran = list(prompt), 0
for i in range(16):
    logits = model.forward(tokens, range(len(tokens)), whole_sequence, [len(tokens) - 1])
    ran += len(tokens)
    if i in (0, 1, 7, 15):
        print(f"pass {i + 1:2}: {len(tokens):3} tokens run, {ran:4} so far")
    tokens.append(int(np.argmax(logits[0])))
uncached = tokens[len(prompt) :]
print(tokenizer.decode(tokens))

# %% [markdown] lang="en"
# A **token-forward** is one token going once through the model. Now a longer job: a prompt of n = 1,000
# tokens and m = 1,000 new ones. Guess before you compute. Put your numbers in place of `None`.

# %% [markdown] lang="zh" en="b22b734f"
# 一个 token 完整地过一遍模型，叫一次 **token 前向**（token-forward）。现在换一个更长的任务：提示词 n = 1,000 个 token，新生成 m = 1,000 个。先猜再算：把你的数写在 `None` 的位置上。

# %%
predict("01.without_cache", value=None)
predict("01.with_cache", value=None)

# %% [markdown] lang="en"
# ## Exercise 1.1 - count the token-forwards
#
# Difficulty 2/5 · importance 4/5 · 10 minutes · about 3 lines
#
# Write `token_forwards(n, m, cached)` for a prompt of n tokens and m new ones, both at least 1.
#
# - `cached=False`: every pass runs the whole sequence so far, the newest token included.
# - `cached=True`: the prompt runs once. Then each pass runs one token, the newest.
# - Return an exact `int`, however large the numbers. A loop over the passes will do. A formula is shorter.
#
# Small case, n = 2 and m = 3: without a cache 2 + 3 + 4 = 9. With one 2 + 1 + 1 = 4.

# %% [markdown] lang="zh" en="4c9a15b6"
# ## 练习 1.1 - 数一数 token 前向
#
# 难度 2/5 · 重要性 4/5 · 10 分钟 · 大约 3 行
#
# 写出 `token_forwards(n, m, cached)`：提示词有 n 个 token，新生成 m 个，两者都至少为 1。
#
# - `cached=False`：每一轮都要把截至目前的整个序列跑一遍，最新的那个 token 也算在内。
# - `cached=True`：提示词只跑一次。之后每一轮只跑一个 token，也就是最新的那个。
# - 无论数字多大，都要返回精确的 `int`。用循环逐轮累加也行，直接写公式更短。
#
# 小例子，n = 2，m = 3：没有缓存时是 2 + 3 + 4 = 9；有缓存时是 2 + 1 + 1 = 4。


# %% exercise="token_forwards"
def token_forwards(n, m, cached):
    """Token-forwards that produce m new tokens after a prompt of n tokens."""
    ### BEGIN SOLUTION
    if cached:
        return n + m - 1
    return m * n + m * (m - 1) // 2
    ### END SOLUTION


# %% test="token_forwards" points=1
token_forwards = check("01.token_forwards", token_forwards)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Write down the passes for n = 2, m = 3. How long is the first? How long is the last?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Without a cache the passes have n, n + 1, ... tokens, m of them. That is m times n, plus 0 + 1 + ... + (m - 1). With a
# cache, count how many of the m new tokens ever go back in.
#
# </details>
# <details><summary>Hint 3: "the result is an int" fails</summary>
#
# `/` gives a float. A float64 holds whole numbers exactly only up to 2 to the power of 53. Use `//`.
#
# </details>

# %% [markdown] lang="zh" en="fd7adf1c"
# <details><summary>提示 1：从哪里入手</summary>
#
# 把 n = 2、m = 3 时的每一轮都写下来。第一轮有多长？最后一轮有多长？
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 没有缓存时，各轮的长度依次是 n、n + 1……一共 m 轮。总和就是 m 乘以 n，再加上 0 + 1 + ... + (m - 1)。有缓存时，数一数 m 个新 token 中有几个还会再送回模型。
#
# </details>
# <details><summary>提示 3：“the result is an int”这一项不通过</summary>
#
# `/` 得到的是浮点数。float64 只能精确表示不超过 2 的 53 次方的整数。改用 `//`。
#
# </details>

# %% tags=["claim-token-forwards", "claim-1999"]
without, cached = token_forwards(1000, 1000, False), token_forwards(1000, 1000, True)
print(f"without a cache {without:,}   with a cache {cached:,}   ratio {without / cached:.3f}")
print(f"with 2,000 in the place of {cached:,}, the ratio would be {without / 2000}")

# %% [markdown] lang="en"
# You often read "2,000" and "about 750 times". The 2,000 is one too many. The last new token is returned to the user.
# Nothing comes after it, so nothing needs its K and V, and it never runs. The exact count is n + m - 1.
#
# So there is a factor of 750 to win, if a token's part in the past can be kept. Can it? To see that, look at what tokens
# take from each other. It happens in one place only: attention.
#
# ## What attention reads
#
# In each layer, every token makes three vectors: a query **q**, a key **k** and a value **v**. Token t compares its
# query with the keys of tokens 0 to t. Softmax turns the scores into weights. Out comes the weighted mean of the values:
#
# $$o_t = \sum_{s \le t} w_{ts}\, v_s \qquad w_{t\cdot} = \mathrm{softmax}_{s \le t}\big(\mathrm{scale} \cdot q_t \cdot k_s\big)$$
#
# | symbol | meaning | tiny-gqa |
# |---|---|---|
# | T | new tokens in this pass | 1 or more |
# | S | tokens so far, the new ones included | up to 4,096 |
# | H | query heads | 8 |
# | K | key/value heads, each shared by H / K query heads | 2 |
# | D | size of a head | 32 |
# | L | layers | 4 |
#
# The scale is one over the square root of D. "Causal" is the condition s ≤ t: a token never looks ahead.

# %% [markdown] lang="zh" en="c45f437a"
# 常有人说“2,000 次”和“大约 750 倍”。2,000 多数了一次：最后一个新 token 直接交给用户，后面再没有 token 了，谁也用不到它的 K 和 V，所以它根本不会跑。精确的次数是 n + m - 1。
#
# 所以，只要一个 token 过去算出的东西能留下来，计算量就能降到大约 750 分之一。可是留得住吗？要回答这个问题，得看 token 之间互相取用了什么。这种取用只发生在一个地方：注意力。
#
# ## 注意力读了什么
#
# 在每一层里，每个 token 都会产生三个向量：查询 **q**、键 **k** 和值 **v**。token t 拿自己的查询去和 token 0 到 t 的键逐一比较，softmax 把得到的分数变成权重，输出就是各个 token 的值按权重求出的平均：
#
# $$o_t = \sum_{s \le t} w_{ts}\, v_s \qquad w_{t\cdot} = \mathrm{softmax}_{s \le t}\big(\mathrm{scale} \cdot q_t \cdot k_s\big)$$
#
# | 符号 | 含义 | tiny-gqa |
# |---|---|---|
# | T | 这一轮里的新 token 数 | 1 或更多 |
# | S | 到目前为止的 token 数，含新 token | 最多 4,096 |
# | H | 查询头数 | 8 |
# | K | 键/值头数，每个由 H / K 个查询头共用 | 2 |
# | D | 每个头的大小 | 32 |
# | L | 层数 | 4 |
#
# scale 是 D 的平方根的倒数。所谓“因果”，就是 s ≤ t 这个条件：一个 token 绝不看它后面的 token。

# %% tags=["diagram"]
svg(*pictures.causal_triangle())

# %% [markdown] lang="en"
# Three plain loops say the same, one number at a time. Nobody would run them. But nobody can misread them either, so
# they are our judge from here on.

# %% [markdown] lang="zh" en="f0d2540d"
# 下面三层朴素的循环做的是同一件事，一次只算一个数。没人会真的拿它去跑，但也没人会读错它。所以从这里开始，它就是我们的裁判。


# %% tags=["claim-attention"]
def attention_with_loops(q, k, v, scale, offset=0):
    """q[T, H, D], k[S, K, D], v[S, K, D] -> [T, H, D]; row t sees keys 0..offset+t."""
    (T, H, D), K = q.shape, k.shape[1]
    out = np.zeros((T, H, D))
    for t in range(T):
        for h in range(H):
            g = h // (H // K)  # the K/V head that query head h reads
            seen = range(offset + t + 1)
            scores = [scale * sum(q[t, h, d] * k[s, g, d] for d in range(D)) for s in seen]
            powers = [np.exp(score - max(scores)) for score in scores]
            for s in seen:
                out[t, h] += powers[s] / sum(powers) * v[s, g]
    return out


# %% [markdown] lang="en"
# ## Exercise 1.2 - causal attention without loops
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 8 lines
#
# Write `causal_attention(q, k, v, scale, offset)` with array operations.
#
# - Shapes as above: `q[T, H, D]`, `k[S, K, D]`, `v[S, K, D]`, result `[T, H, D]`.
# - Row t stands at place offset + t. It sees keys 0 to offset + t, and no later one.
# - Take the offset that you are given. S may be larger than offset + T: nobody sees the keys behind that.
# - Query head h reads K/V head `h // (H // K)`. Neighbours share a head.
# - Large scores must not overflow. A hidden key has a weight of exactly 0, however large the scores are.
# - The inputs are float64 and must not change. Every digit counts, so stay in float64.
#
# Why an offset? With a cache, the new rows are not at the start. Small case: one new row, T = 1, after two cached tokens.
# S is 3, the offset is 2, and the row sees keys 0, 1 and 2.

# %% [markdown] lang="zh" en="95b0e91c"
# ## 练习 1.2 - 不用循环的因果注意力
#
# 难度 3/5 · 重要性 5/5 · 20 分钟 · 大约 8 行
#
# 用数组运算写出 `causal_attention(q, k, v, scale, offset)`。
#
# - 形状同上：`q[T, H, D]`、`k[S, K, D]`、`v[S, K, D]`，结果是 `[T, H, D]`。
# - 第 t 行位于位置 offset + t。它能看到键 0 到 offset + t，更后面的一个也看不到。
# - offset 用传进来的那个值。S 可以大于 offset + T：再往后的键谁也看不到。
# - 查询头 h 读取 K/V 头 `h // (H // K)`。相邻的查询头共用一个 K/V 头。
# - 分数再大也不能溢出。不可见的键，权重必须正好是 0，无论分数有多大。
# - 输入是 float64，不许改动。每一位数字都会检查，所以全程保持 float64。
#
# 为什么要有 offset？因为有了缓存，新的行就不在开头了。小例子：已经缓存了两个 token，新来一行，T = 1。这时 S 是 3，offset 是 2，这一行能看到键 0、1 和 2。


# %% exercise="causal_attention"
def causal_attention(q, k, v, scale, offset=0):
    """q[T, H, D], k[S, K, D], v[S, K, D] -> [T, H, D]; row t sees keys 0..offset+t."""
    ### BEGIN SOLUTION
    group = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = scale * np.einsum("thd,shd->hts", q, keys)
    visible = np.tri(len(q), len(k), offset, dtype=bool)
    scores = np.where(visible, scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return np.einsum("hts,shd->thd", weights, values)
    ### END SOLUTION


# %% test="causal_attention" points=2 tags=["claim-attention"]
causal_attention = check("01.causal_attention", causal_attention)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Three steps, three arrays: scores `[H, T, S]`, weights `[H, T, S]`, result `[T, H, D]`. `np.einsum` writes the two
# products without reshaping. `np.repeat` copies each K/V head for its group.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. Repeat k and v to H heads along axis 1.
# 2. `scores = scale * np.einsum("thd,shd->hts", q, k)`.
# 3. Put minus infinity where row t may not look. `np.tri(T, S, offset)` is one where it may. -10,000 is not enough.
# 4. Subtract each row's maximum, take `np.exp`, divide by the row's sum.
# 5. `np.einsum("hts,shd->thd", weights, v)`.
#
# </details>
# <details><summary>Hint 3: "with an offset" fails</summary>
#
# A mask of shape `[T, S]` that starts at row 0 is right only for the first tokens. The diagonal moves right by `offset`.
# S - T is not always that number.
#
# </details>

# %% [markdown] lang="zh" en="2226c0aa"
# <details><summary>提示 1：从哪里入手</summary>
#
# 三步，三个数组：分数 `[H, T, S]`、权重 `[H, T, S]`、结果 `[T, H, D]`。用 `np.einsum` 写那两次乘法，不需要 reshape。`np.repeat` 可以把每个 K/V 头复制给它那一组。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 沿第 1 轴把 k 和 v 复制成 H 个头。
# 2. `scores = scale * np.einsum("thd,shd->hts", q, k)`。
# 3. 第 t 行不能看的地方填负无穷。能看的地方，`np.tri(T, S, offset)` 的值是 1。填 -10,000 是不够的。
# 4. 每一行减去该行的最大值，做 `np.exp`，再除以该行的和。
# 5. `np.einsum("hts,shd->thd", weights, v)`。
#
# </details>
# <details><summary>提示 3：“with an offset”这一项不通过</summary>
#
# 从第 0 行开始的 `[T, S]` 掩码，只有对最开头的那些 token 才是对的。对角线要右移 `offset`，而 S - T 不总是等于这个数。
#
# </details>

# %% [markdown] lang="en"
# ## Why past K and V never change
#
# Take the key of token 3 in layer 2. It is computed from the hidden state of token 3. That state is built from tokens 0
# to 3, because attention below looked no further. Token 4 comes later, and it is in none of it. Go up layer by layer,
# and the same holds each time.
#
# That is an argument. Here is the experiment: run t tokens, run t + 1 tokens, and compare the K and V that the first t
# tokens left in each layer.

# %% [markdown] lang="zh" en="6e410437"
# ## 为什么已有的 K 和 V 永远不变
#
# 拿第 2 层里 token 3 的键来说。它由 token 3 的隐藏状态算出来，而这个状态只由 token 0 到 3 构成，因为下面各层的注意力都没有看更后面的 token。token 4 来得更晚，这里面完全没有它的份。一层层往上，每一层都是同样的道理。
#
# 这是推理。下面是实验：先跑 t 个 token，再跑 t + 1 个，然后比较两次运行中，前 t 个 token 在每一层留下的 K 和 V。


# %% tags=["claim-never-change"]
def keys_and_values(tokens, first_position=0, mask=True):
    """Every layer's K and V for these tokens: a list of [2, T, K, D]."""
    kept = []

    def attend(layer, q, k, v):
        kept.append(np.stack([k, v]))
        if mask:
            return causal_attention(q, k, v, scale)
        # Treat every row as the last one: then it sees all keys, those of later tokens too.
        return np.concatenate([causal_attention(row[None], k, v, scale, len(k) - 1) for row in q])

    model.forward(tokens, range(first_position, first_position + len(tokens)), attend, [0])
    return kept


def largest_change(before, after):
    """Per layer: the largest difference, relative to the largest number."""
    return [np.abs(a - b).max() / np.abs(a).max() for a, b in zip(before, after)]


text = tokenizer.encode("It was a dark night, and nobody had seen the captain since the morning.")
runs = [keys_and_values(text[:t]) for t in range(1, len(text) + 1)]
pairs = [(runs[t - 1], [kv[:, :-1] for kv in runs[t]]) for t in range(1, len(text))]
causal = np.max([largest_change(short, long) for short, long in pairs], axis=0)
print(f"t tokens against t + 1 tokens, for t = 1 to {len(pairs)}: K and V of the first t tokens")
print(f"equal within 1e-12, relative, in each layer: {[bool(change < 1e-12) for change in causal]}")

# %% [markdown] lang="en"
# Equal within 1e-12, but not always to the last bit. A matrix product is a sum. With another number of rows, the library
# may add in another order, and the sum of floats depends on the order. How much differs depends on your machine:

# %% [markdown] lang="zh" en="14d4687f"
# 差别在 1e-12 以内，但不一定每一位都相同。矩阵乘法就是求和；行数变了，计算库可能换一种相加的顺序，而浮点数的和与顺序有关。到底差多少，取决于你的机器：

# %% tags=["nbval-ignore-output", "claim-last-bit"]
for t in (1, 4, len(pairs) - 1):
    short, long = pairs[t - 1]
    share = np.mean([np.mean(a != b) for a, b in zip(short, long)])
    change = max(largest_change(short, long))
    print(f"t = {t:2}: {share:6.1%} of the numbers differ, by {change:.0e} at most, relative")
print(f"the order of a sum: 0.1 + 0.2 + 0.3 = {0.1 + 0.2 + 0.3}, 0.3 + 0.2 + 0.1 = {0.3 + 0.2 + 0.1}")

# %% [markdown] lang="en"
# So a cached run and a full run agree to rounding, not bit by bit. When two tokens are almost equally likely, rounding
# can even decide which one comes. Whoever tests an engine has to know this. We come back to it.
#
# ### Where the argument breaks
#
# It rests on two things: nobody looks ahead, and a token keeps its position. Take one away at a time.

# %% [markdown] lang="zh" en="c367a2a1"
# 所以，用缓存跑和完整地跑，只在舍入误差范围内一致，并非逐位一致。如果两个 token 的概率几乎相等，舍入甚至会决定选中哪一个。测试引擎的人必须知道这一点，后面我们还会回到这里。
#
# ### 这个推理在哪里失效
#
# 它依赖两件事：谁也不看后面的 token，而且每个 token 的位置固定不变。下面每次去掉其中一件。

# %% tags=["claim-no-mask"]
t = len(text) - 1
unmasked = [keys_and_values(text[:end], mask=False) for end in (t, t + 1)]
no_mask = largest_change(unmasked[0], [kv[:, :-1] for kv in unmasked[1]])
moved = largest_change(runs[t - 1], keys_and_values(text[:t], first_position=1))
changes = {"causal, positions fixed": causal, "no mask": no_mask, "positions moved by one": moved}
print("largest change of K or V     ", "  ".join(f"    layer {i}" for i in range(len(moved))))
for name, change in changes.items():
    print(f"{name:<28}", "  ".join("below 1e-12" if c < 1e-12 else f"{c:11.2f}" for c in change))

# %% [markdown] lang="en" tags=["question"]
# <details><summary><b>Question.</b> Without the mask, why does layer 0 stay the same?</summary>
#
# K and V of layer 0 are made before any attention has run. They depend on the token and its position only. The new token
# enters through layer 0's attention, so it shows from layer 1 on. A test that looks at layer 0 alone would miss the bug.
#
# </details>
# <details><summary><b>Question.</b> Which models have no such cache?</summary>
#
# Those that look both ways, such as BERT. Add a token, and every K and V from layer 1 on changes.
#
# </details>
# <details><summary><b>Question.</b> When do positions move in practice?</summary>
#
# When a program cuts the oldest tokens from a chat that got too long, and numbers the rest anew from 0. All kept K are
# then rotated by the wrong angles. The whole cache has to be thrown away.
#
# </details>

# %% [markdown] lang="zh" en="edb35362"
# <details><summary><b>问题。</b>去掉掩码后，为什么第 0 层没有变？</summary>
#
# 第 0 层的 K 和 V 在任何注意力之前就算好了，只取决于 token 本身和它的位置。新 token 的影响要经过第 0 层的注意力才能进来，所以从第 1 层起才看得到。只检查第 0 层的测试会漏掉这个 bug。
#
# </details>
# <details><summary><b>问题。</b>哪些模型没有这样的缓存？</summary>
#
# 注意力是双向的模型，例如 BERT。多一个 token，从第 1 层起的所有 K 和 V 都会变。
#
# </details>
# <details><summary><b>问题。</b>实践中什么时候位置会移动？</summary>
#
# 聊天太长，程序砍掉最老的 token，再把剩下的从 0 开始重新编号，就会这样。这时留着的每个 K 都是按错误的角度旋转的，整个缓存只能丢掉。
#
# </details>

# %% [markdown] lang="en"
# ## Exercise 1.3 - a KV cache
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 12 lines
#
# Now keep them. Write the class `KVCache(num_layers, capacity, num_kv_heads, head_dim)`.
#
# - Reserve everything at the start: float64 arrays for K and V, room for `capacity` tokens in each layer.
# - `append(layer, k[T, K, D], v[T, K, D])` stores T new tokens in that layer. It returns all of that layer so far, the
#   pair `(k_all[S, K, D], v_all[S, K, D])`.
# - Layers fill one after another within a pass, so each layer has its own length.
# - Too many tokens: raise `MemoryError`, name the capacity, and change nothing.
# - `num_tokens` counts the tokens that every layer holds. `nbytes` is what is reserved, used or not.
#
# Small case, one layer, capacity 3: append 2 tokens and get 2 back. Append 1 and get 3 back. Append 1 more: `MemoryError`.

# %% [markdown] lang="zh" en="8aa73418"
# ## 练习 1.3 - KV Cache
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 12 行
#
# 现在把它们留下来。写出类 `KVCache(num_layers, capacity, num_kv_heads, head_dim)`。
#
# - 一开始就预留全部空间：K 和 V 各用 float64 数组，每一层能放 `capacity` 个 token。
# - `append(layer, k[T, K, D], v[T, K, D])` 把 T 个新 token 存进那一层，并返回这一层到目前为止的全部内容，即二元组 `(k_all[S, K, D], v_all[S, K, D])`。
# - 一轮前向里，各层是先后填入的，所以每一层有自己的长度。
# - 放不下时：抛出 `MemoryError`，写明容量，并且什么都不改动。
# - `num_tokens` 是每一层都已存下的 token 数。`nbytes` 是预留的字节数，用没用到都算。
#
# 小例子，一层，容量 3：append 2 个 token，返回 2 个。再 append 1 个，返回 3 个。再 append 1 个：`MemoryError`。


# %% exercise="kv_cache"
class KVCache:
    """K and V of one sequence, every layer's, in arrays of fixed size."""

    def __init__(self, num_layers, capacity, num_kv_heads, head_dim):
        ### BEGIN SOLUTION
        self.capacity = capacity
        self.k = np.zeros((num_layers, capacity, num_kv_heads, head_dim))
        self.v = np.zeros_like(self.k)
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
        return self.k.nbytes + self.v.nbytes
        ### END SOLUTION

    def append(self, layer, k, v):
        ### BEGIN SOLUTION
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.capacity:
            raise MemoryError(f"{end} tokens do not fit into a capacity of {self.capacity}")
        self.k[layer, start:end], self.v[layer, start:end] = k, v
        self.lengths[layer] = end
        return self.k[layer, :end], self.v[layer, :end]
        ### END SOLUTION


# %% test="kv_cache" points=2
KVCache = check("01.kv_cache", KVCache)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Two arrays of shape `[num_layers, capacity, num_kv_heads, head_dim]`, and one length for each layer.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# In `append`: start is the layer's length, end is start plus `len(k)`. If end is beyond the capacity, raise. Copy k and v
# into rows start to end. Set the length. Return the rows from 0 to end of both arrays.
#
# </details>
# <details><summary>Hint 3: "layers are kept apart" fails</summary>
#
# One counter for all layers moves four times in a pass of four layers. Keep a list of lengths.
#
# </details>

# %% [markdown] lang="zh" en="8e786f53"
# <details><summary>提示 1：从哪里入手</summary>
#
# 两个形状为 `[num_layers, capacity, num_kv_heads, head_dim]` 的数组，外加每层一个长度。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 在 `append` 里：start 是该层的长度，end 是 start 加 `len(k)`。end 超过容量就抛出异常。把 k 和 v 复制到第 start 到 end 行，更新长度，返回两个数组的第 0 到 end 行。
#
# </details>
# <details><summary>提示 3：“layers are kept apart”这一项不通过</summary>
#
# 如果所有层共用一个计数器，四层的模型跑一轮它就会移动四次。用一个列表记录各层的长度。
#
# </details>

# %% [markdown] lang="en"
# ## What it costs
#
# Guess first, for a real model. SmolLM2-135M has 30 layers. Each has 9 query heads and 3 K/V heads, all of size 64. A number
# takes 2 bytes. How many bytes does the cache need for one token?

# %% [markdown] lang="zh" en="22a5a2a5"
# ## 它有多大开销
#
# 先拿一个真实的模型猜一猜。SmolLM2-135M 有 30 层，每层有 9 个查询头和 3 个 K/V 头，大小都是 64，一个数占 2 字节。缓存一个 token 需要多少字节？

# %%
predict("01.bytes_per_token", value=None)

# %% [markdown] lang="en"
# Two vectors, K and V, for each layer and each K/V head, of D numbers with b bytes each:
#
# $$\text{bytes per token} = 2 \cdot L \cdot K \cdot D \cdot b$$
#
# The next cell holds the formula against what your `KVCache` has reserved, as NumPy counts it. Your arrays are float64,
# so compare the lines with b = 8.

# %% [markdown] lang="zh" en="a95f59d2"
# K 和 V 两个向量，每一层、每个 K/V 头各一份，每个向量有 D 个数，每个数占 b 字节：
#
# $$\text{bytes per token} = 2 \cdot L \cdot K \cdot D \cdot b$$
#
# 下一个单元格把公式和你的 `KVCache` 实际预留的字节数（由 NumPy 统计）放在一起比较。你的数组是 float64，所以要看 b = 8 的那几行。

# %% tags=["claim-bytes-per-token"]
shapes = {"tiny-gqa": (4, 2, 32), "SmolLM2-135M": (30, 3, 64)}  # layers, K/V heads, head size
print("model           b   bytes per token   1,000 tokens, by the formula          reserved by KVCache")
for name, (L, K, D) in shapes.items():
    reserved = KVCache(L, 1000, K, D).nbytes
    assert reserved == 1000 * (2 * L * K * D * 8)
    for b in (8, 2):
        held = 1000 * (2 * L * K * D * b)
        size = f"{held:10,} B = {held / 1e6:5.2f} MB = {held / 2**20:5.2f} MiB"
        print(f"{name:<13} {b:3} {held // 1000:17,}   {size}   {f'{reserved:,} B' if b == 8 else '-':>19}")
# What tiny-gqa keeps of a token in this lesson: 8 is for float64.
bytes_per_token = 2 * spec.num_hidden_layers * spec.num_key_value_heads * spec.head_dim * 8

# %% [markdown] lang="en"
# It grows with every token, in a straight line, and it is there until the request ends. Move the sliders. The gap on the
# left is what you save, the line on the right is what you pay. Each step up on the left axis is a factor, not a number.
#
# Below, four jobs as a table. What decides how much a cache saves?

# %% [markdown] lang="zh" en="32c9376d"
# 缓存占用的字节数随 token 数线性增长，请求结束才释放。拖动滑块看看：左图两线之间的空隙是你省下的，右图的线是你付出的。注意左图的纵轴：每往上一格是乘上一个倍数，不是加上一个数。
#
# 再往下，用表格列出四个任务。缓存能省多少，由什么决定？

# %% tags=["claim-cost-grows"]
sizes = [1, 10, 100, 1000, 2000, 4000]
panel(pictures.savings, prompt={1000: sizes}, output={1000: sizes})

# %%
print("prompt  output  without cache  with cache   ratio  cache at the end (tiny-gqa, float64)")
for n, m in [(4000, 1), (1000, 10), (1000, 1000), (10, 4000)]:
    a, b = token_forwards(n, m, False), token_forwards(n, m, True)
    held = b * bytes_per_token
    print(f"{n:6,} {m:7,} {a:14,} {b:11,} {a / b:7.1f}  {held:10,} B = {held / 2**20:5.2f} MiB")

# %% [markdown] lang="en"
# The length of the answer decides. The ratio comes close to m after a long prompt, and close to m / 2 after a short one.
# With one new token it is 1: the cache saves nothing, and its bytes depend on the prompt all the same.
#
# ## Exercise 1.4 - prefill, then decode
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 10 lines
#
# You have the attention and the cache. Write the loop that uses them: `generate_cached(model, cache, prompt, max_tokens)`.
#
# - **Prefill**: run the whole prompt in one pass. The last row's logits give the first new token.
# - **Decode**: run one token per pass, the newest, at the next position.
# - Greedy: the token with the largest logit. Return a list of `max_tokens` ints. Zero is allowed and runs nothing.
# - `model.forward(tokens, positions, attend, rows)` is the pass you know. `positions` is a list too, or a range: one
#   position for each token of the pass. Your `attend(layer, q, k, v)` appends to the cache and attends to all that is in it.
# - The scale is `model.spec.head_dim ** -0.5`. Take it from the model you are given: the check brings one with smaller heads.
#
# Small case, 3 prompt tokens, 3 new ones: passes of 3, 1 and 1 tokens, at positions 0 to 2, then 3, then 4.

# %% [markdown] lang="zh" en="95e13875"
# 决定因素是回答的长度。提示词很长时，倍数接近 m；提示词很短时，接近 m / 2。如果只生成一个新 token，倍数就是 1：缓存什么也没省，占用的字节却照样取决于提示词。
#
# ## 练习 1.4 - 先预填充，再解码
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 10 行
#
# 注意力和缓存都有了，现在写使用它们的循环：`generate_cached(model, cache, prompt, max_tokens)`。
#
# - **预填充**（prefill）：用一轮前向跑完整个提示词。最后一行的 logits 给出第一个新 token。
# - **解码**（decode）：每轮只跑一个 token，也就是最新的那个，放在下一个位置。
# - 贪心：取 logit 最大的 token。返回 `max_tokens` 个 int 组成的列表。允许为零，这时什么都不跑。
# - `model.forward(tokens, positions, attend, rows)` 就是前面见过的那一轮前向。`positions` 也是列表或 range：这一轮里每个 token 对应一个位置。你的 `attend(layer, q, k, v)` 把新的部分追加进缓存，再对其中的全部内容做注意力计算。
# - scale 是 `model.spec.head_dim ** -0.5`。要从传进来的模型上取：检查时用的模型，头更小。
#
# 小例子，提示词 3 个 token，新生成 3 个：三轮分别跑 3、1、1 个 token，位置依次是 0 到 2、3、4。


# %% exercise="generate_cached"
def generate_cached(model, cache, prompt, max_tokens):
    """Greedy tokens after `prompt`: one pass for the prompt, then one pass for each further token."""
    ### BEGIN SOLUTION
    scale = model.spec.head_dim**-0.5

    def attend(layer, q, k, v):
        k_all, v_all = cache.append(layer, k, v)
        return causal_attention(q, k_all, v_all, scale, offset=len(k_all) - len(q))

    new, position, output = list(prompt), 0, []
    while len(output) < max_tokens:
        positions = range(position, position + len(new))
        logits = model.forward(new, positions, attend, [len(new) - 1])
        position += len(new)
        new = [int(np.argmax(logits[0]))]
        output += new
    return output
    ### END SOLUTION


# %% test="generate_cached" points=2
generate_cached = check("01.generate_cached", generate_cached)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Both phases are the same call. Only the number of new tokens differs: n in the first pass, one in each later pass.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. In `attend`: append, then call `causal_attention` on what came back. The offset is what was cached before: S - T
#    here, as your cache returns no spare rows. The scale is that of `model`, not the notebook's global.
# 2. Start with `new = prompt` at position 0.
# 3. Run `new`. Move the position on by its length. Take the argmax of the last row as the next `new`.
# 4. Stop when you have `max_tokens` of them. The last one is not run.
#
# </details>
# <details><summary>Hint 3: the first pass is right, the tokens are not</summary>
#
# Then prefill works and decode does not. Check the offset, and check that the positions go on at n.
#
# </details>
# <details><summary>Hint 4: the first pass is wrong</summary>
#
# Print `scale` and `model.spec.head_dim` in your `attend`. 4 to the power of -0.5 is 0.5.
#
# </details>

# %% [markdown] lang="zh" en="499e1cd4"
# <details><summary>提示 1：从哪里入手</summary>
#
# 两个阶段用的是同一个调用，只是新 token 的个数不同：第一轮是 n 个，之后每轮一个。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 在 `attend` 里：先 append，再对返回的内容调用 `causal_attention`。offset 是此前已缓存的 token 数：这里就是 S - T，因为你的缓存不返回多余的行。scale 用 `model` 的，不是 notebook 里的全局变量。
# 2. 从位置 0 开始，令 `new = prompt`。
# 3. 跑 `new`。位置加上它的长度。最后一行的 argmax 就是下一个 `new`。
# 4. 凑够 `max_tokens` 个就停。最后一个不用跑。
#
# </details>
# <details><summary>提示 3：第一轮是对的，token 却不对</summary>
#
# 那就是预填充没问题，解码有问题。检查 offset，再检查位置是不是从 n 接着往后走。
#
# </details>
# <details><summary>提示 4：第一轮就错了</summary>
#
# 在你的 `attend` 里打印 `scale` 和 `model.spec.head_dim`。4 的 -0.5 次方是 0.5。
#
# </details>

# %% [markdown] lang="en"
# Same text as without a cache? And how close are the logits? Run the 16 tokens both ways and compare every row.

# %% [markdown] lang="zh" en="080768d5"
# 生成的文本和没有缓存时一样吗？logits 又有多接近？把这 16 个 token 用两种方式各跑一遍，逐行比较。

# %% tags=["claim-equal-logits"]
cache = KVCache(spec.num_hidden_layers, 64, spec.num_key_value_heads, spec.head_dim)
new = generate_cached(model, cache, prompt, 16)
print(f"same tokens as without a cache: {new == uncached}")

sequence = prompt + new[:-1]
store = KVCache(spec.num_hidden_layers, 64, spec.num_key_value_heads, spec.head_dim)


def attend_with(store):
    """What the model calls in each layer when K and V are kept in `store`."""

    def attend(layer, q, k, v):
        k_all, v_all = store.append(layer, k, v)
        return causal_attention(q, k_all, v_all, scale, len(k_all) - len(q))

    return attend


attend = attend_with(store)
full = model.forward(sequence, range(len(sequence)), whole_sequence)
step = [model.forward([token], [i], attend) for i, token in enumerate(sequence)]
error = np.abs(np.concatenate(step) - full).max() / np.abs(full).max()
print(f"{full.size:,} logits, one token at a time against all at once")
print(f"equal within 1e-12, relative to the largest: {bool(error < 1e-12)}")

# %% [markdown] lang="en"
# ## Exercise 1.5 - break it
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 8 lines
#
# Here are eight wrong attentions, each a mistake that people make. In code, each is one line:
#
# | bug | what it does | right would be |
# |---|---|---|
# | keys in the place of values | `weights @ k` | `weights @ v` |
# | a token cannot see itself | `np.tri(T, S, offset - 1)` | `np.tri(T, S, offset)` |
# | masked after the softmax | `softmax(scores) * visible` | `softmax(np.where(visible, scores, -np.inf))` |
# | no scale | `q @ k.T` | `scale * q @ k.T` |
# | no mask | `softmax(scores)` | as above |
# | mask forgets the offset | `np.tri(T, S)` | `np.tri(T, S, offset)` |
# | heads dealt round | `np.tile(k, (1, H // K, 1))` | `np.repeat(k, H // K, axis=1)` |
# | exp without the maximum | `np.exp(scores)` | `np.exp(scores - scores.max())`, row by row |
#
# Below is what the engine writes with each of them. Which ones would you notice?

# %% [markdown] lang="zh" en="bfe48590"
# ## 练习 1.5 - 把它弄坏
#
# 难度 3/5 · 重要性 4/5 · 15 分钟 · 大约 8 行
#
# 下面是八个写错的注意力，每一个都是真有人会犯的错。落到代码上，每个只差一行：
#
# | bug | 它写成了 | 应该是 |
# |---|---|---|
# | keys in the place of values（值的位置用了键） | `weights @ k` | `weights @ v` |
# | a token cannot see itself（token 看不到自己） | `np.tri(T, S, offset - 1)` | `np.tri(T, S, offset)` |
# | masked after the softmax（softmax 之后才加掩码） | `softmax(scores) * visible` | `softmax(np.where(visible, scores, -np.inf))` |
# | no scale（没有乘 scale） | `q @ k.T` | `scale * q @ k.T` |
# | no mask（没有掩码） | `softmax(scores)` | 同上 |
# | mask forgets the offset（掩码忘了 offset） | `np.tri(T, S)` | `np.tri(T, S, offset)` |
# | heads dealt round（头轮流分配） | `np.tile(k, (1, H // K, 1))` | `np.repeat(k, H // K, axis=1)` |
# | exp without the maximum（exp 前没减最大值） | `np.exp(scores)` | `np.exp(scores - scores.max())`，逐行做 |
#
# 接下来看引擎用上它们之后分别写出了什么。哪几个你看得出来？

# %% tags=["claim-bugs-read-well"]
from mini_engine.course.exercises.e01_check_attention import WRONG

greedily = SamplingParams(temperature=0, max_tokens=14, ignore_eos=True)
for name, attention in {"(right)": causal_attention, **WRONG}.items():
    answer = LLM(tiny, attention=attention).generate([prompt], greedily, progress=False)[0].outputs[0]
    print(f"{name:<29}{'=' if answer.token_ids == uncached[:14] else ' '} ...{answer.text!r}")

# %% [markdown] lang="en"
# Most of them still write English. Those marked `=` write exactly the right words, for this prompt. Reading text does not
# find such bugs. Tests do, if they are good.
#
# Two of them have a history. "Heads dealt round" is what `np.tile` does where `np.repeat` belongs. A decode mask without
# the offset was reported for gpt-fast ([issue 233](https://github.com/pytorch-labs/gpt-fast/issues/233)).
#
# Write `check_attention(attention)`. It raises `AssertionError` if `attention` is wrong, and returns quietly if it is
# right. We try it on right functions and on these eight.
#
# - Compare with `attention_with_loops`. Allow for rounding: `1e-9` is plenty.
# - Choose the shapes and the numbers so that each bug has somewhere to show.

# %% [markdown] lang="zh" en="3b8875e0"
# 大多数写出来的仍然是英语。标着 `=` 的那些，对这个提示词来说一字不差。靠读文本找不到这样的 bug；好的测试才找得到。
#
# 其中两个有来历。“heads dealt round”就是该用 `np.repeat` 的地方用了 `np.tile`。解码时掩码漏掉 offset，则有人在 gpt-fast 上报告过（[issue 233](https://github.com/pytorch-labs/gpt-fast/issues/233)）。
#
# 请写出 `check_attention(attention)`：`attention` 写错了，就抛出 `AssertionError`；写对了，就安静地返回。我们会拿正确的函数和这八个错的来试它。
#
# - 和 `attention_with_loops` 比较。要容许舍入误差：`1e-9` 足够了。
# - 选好形状和数值，让每个 bug 都有机会露馅。


# %% exercise="check_attention"
def check_attention(attention):
    """Raise AssertionError unless `attention(q, k, v, scale, offset)` is causal attention."""
    ### BEGIN SOLUTION
    rng = np.random.default_rng(1)
    for T, S, H, K in [(1, 1, 1, 1), (4, 4, 1, 1), (2, 6, 4, 2)]:
        q = rng.normal(size=(T, H, 4))
        k, v = rng.normal(size=(2, S, K, 4))
        for size in (1, 2000):
            got = attention(size * q, k, v, 0.5, S - T)
            expected = attention_with_loops(size * q, k, v, 0.5, S - T)
            assert np.allclose(got, expected, rtol=0, atol=1e-9), f"T={T}, S={S}, H={H}, K={K}"
    ### END SOLUTION


# %% test="check_attention" points=2
check_attention = check("01.check_attention", check_attention)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The check asks for one bug first, the mask that forgets the offset. After that it lists all that slipped through. Each
# name says what your inputs lack: later tokens, shared heads, a scale other than 1, large scores.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Draw random q, k, v. Use at least one case with S larger than T, with an offset of S - T, and with H larger than K. Use
# q once as it is and once 2,000 times larger. Assert `np.allclose(got, expected, rtol=0, atol=1e-9)`.
#
# </details>
# <details><summary>Hint 3: "right answers pass" fails</summary>
#
# You ask for equality to the last bit. Two right answers add in different orders.
#
# </details>

# %% [markdown] lang="zh" en="dbf30a70"
# <details><summary>提示 1：从哪里入手</summary>
#
# 检查会先要求抓住一个 bug：忘了 offset 的掩码。之后才会列出所有漏网的。每个名字都说明了你的输入还缺什么：后面的 token、共用的头、不为 1 的 scale、很大的分数。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 随机生成 q、k、v。至少要有一种情形：S 大于 T，offset 是 S - T，而且 H 大于 K。q 用一次原值，再用一次放大 2,000 倍的值。断言 `np.allclose(got, expected, rtol=0, atol=1e-9)`。
#
# </details>
# <details><summary>提示 3：“right answers pass”这一项不通过</summary>
#
# 你要求了逐位相等。两个正确的答案，相加的顺序可以不同。
#
# </details>

# %% [markdown] lang="en"
# One popular test needs no second answer. It compares decode with prefill: one row at a time against all rows at once,
# with the same function.

# %% [markdown] lang="zh" en="92780fae"
# 有一种常见的测试不需要第二个答案：把解码和预填充对比，也就是用同一个函数，先一行一行地算，再所有行一起算。


# %% tags=["claim-bugs-read-well"]
def decode_against_prefill(attention):
    """Whether one row at a time and all rows at once agree: attention compared with itself."""
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 2, 4))
    whole = attention(q, k, v, 0.5, 0)
    rows = [attention(q[t : t + 1], k[: t + 1], v[: t + 1], 0.5, t) for t in range(6)]
    return np.allclose(np.concatenate(rows), whole)


with np.errstate(all="ignore"):
    caught = {name: not decode_against_prefill(attention) for name, attention in WRONG.items()}
for wanted in (True, False):
    names = [name for name, found in caught.items() if found == wanted]
    print(f"{'caught' if wanted else 'missed'} {len(names)} of {len(caught)}: {', '.join(names)}")

# %% [markdown] lang="en"
# A wrong scale is wrong both times, so both sides agree. Only an answer that you did not write yourself finds such bugs.
#
# ## Your parts in the real engine
#
# Now the engine itself. One argument for your cache, one for your attention. It tokenizes, samples and stops as always,
# and your code keeps and reads K and V. The judge is the engine as it comes. It keeps K and V in blocks, not in your array.

# %% [markdown] lang="zh" en="3b929ceb"
# scale 错了，两次都错得一样，所以两边一致。只有拿一个不是你自己写的答案来对照，才能找出这样的 bug。
#
# ## 把你的部件装进真正的引擎
#
# 现在轮到引擎本身。一个参数放你的缓存，一个参数放你的注意力。分词、采样、停止都照旧，而 K 和 V 由你的代码来存、来读。裁判是原装的引擎：它把 K 和 V 存在一个个块（block）里，而不是存在你的数组里。

# %% tags=["claim-engine-runs-on-it"]
question = "Emma was"
params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
mine = LLM("tiny-gqa", backend="numpy", cache=KVCache, attention=causal_attention)
engines = LLM("tiny-gqa", backend="numpy")
a = mine.generate([question], params, progress=False)[0].outputs[0]
b = engines.generate([question], params, progress=False)[0].outputs[0]
print(question + a.text)
print()
print(f"same text as the engine: {a.text == b.text}, same tokens: {a.token_ids == b.token_ids}")
counted = token_forwards(len(tokenizer.encode(question)), 40, True)
print(f"token-forwards: {mine.last_stats.num_forward_tokens}, as counted: {counted}")
print(f"torch is loaded: {'torch' in sys.modules}")

# %% [markdown] lang="en" tags=["claim-torch"]
# ## A second judge
#
# All of this was NumPy in float64. PyTorch has its own attention, written by other people. One decode step through both:
# single head, many heads, shared heads. And the same 40 tokens from the engine on PyTorch, in float32.

# %% [markdown] lang="zh" en="fbeb9210"
# ## 第二位裁判
#
# 到这里为止都是 float64 的 NumPy。PyTorch 有自己的注意力，是别人写的。让两边各做一步解码：单头、多头、共用头。再用 PyTorch 上的引擎，以 float32 生成同样的 40 个 token。

# %% tags=["claim-torch"]
import torch
from torch.nn.functional import scaled_dot_product_attention

rng = np.random.default_rng(0)
for H, K in ((1, 1), (8, 8), (8, 2)):
    q, k, v = rng.normal(size=(1, H, 32)), *rng.normal(size=(2, 100, K, 32))
    heads_first = [torch.from_numpy(x).transpose(0, 1) for x in (q, k, v)]
    theirs = scaled_dot_product_attention(*heads_first, scale=scale, enable_gqa=True)
    ours = causal_attention(q, k, v, scale, offset=99)
    same = bool(np.abs(ours - theirs.transpose(0, 1).numpy()).max() < 1e-12)
    print(f"H = {H}, K = {K}: equal within 1e-12: {same}")
theirs = LLM("tiny-gqa", backend="torch").generate([question], params, progress=False)
print(f"same tokens from PyTorch in float32: {theirs[0].outputs[0].token_ids == a.token_ids}")

# %% [markdown] lang="en"
# ## Does the clock agree with the count?
#
# You have seen a factor of 750 in token-forwards. Do you expect 750 in seconds? Here is the measurement on your machine,
# for prompts and outputs of equal length: the quicker of two runs each. The counts on the left are the same everywhere.

# %% [markdown] lang="zh" en="12ad82f9"
# ## 时钟和计数对得上吗？
#
# 前面看到，token 前向差了 750 倍。那么秒数也会差 750 倍吗？下面在你的机器上实测，提示词和输出长度相等，每种跑两次，取较快的一次。左边的计数在哪台机器上都一样。

# %% tags=["nbval-ignore-output", "claim-measured-time"]
from functools import partial

from mini_engine.roofline.measure import best_seconds

print(" n = m   without    with   ratio      seconds without   with   ratio")
for n in (8, 16, 32, 64):
    seconds = []
    for kind in ("none", "contiguous"):
        llm, greedy = LLM(tiny, cache=kind), SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)
        some_prompt = [5] * n  # token 5, n times: the clock does not mind which tokens
        seconds.append(best_seconds(partial(llm.generate, [some_prompt], greedy, progress=False), repeats=2))
    without, cached = token_forwards(n, n, False), token_forwards(n, n, True)
    print(f"{n:6} {without:9,} {cached:7,} {without / cached:7.1f}", end="")
    print(f" {seconds[0]:20.2f} {seconds[1]:6.2f} {seconds[0] / seconds[1]:7.1f}")

# %% [markdown] lang="en"
# The seconds gain less than the counts. Many tokens in one pass share the reading of the weights, and one big matrix
# product is cheaper per row than many small ones. The cache takes away exactly that cheap, shared work. What is left is
# one token per pass, the expensive kind.
#
# ## Count FLOPs, and see what stays quadratic
#
# One decode step at context length t costs, per layer, two kinds of products: tokens times weights, and queries times
# keys. Call the width of the model d. Then the order of the cost is
#
# - t · d² + t² · d without a cache,
# - d² + t · d with one.
#
# The weights of a layer are several matrices, and not all are d wide. The MLP's are wider, those of K and V are narrower.
# But all grow with d, so they are in d². The next cell counts them one by one.

# %% [markdown] lang="zh" en="3cea4f4f"
# 秒数省得没有次数那么多。同一轮里的许多 token 共用一次权重读取，而且一次大的矩阵乘法，平均到每一行，比许多次小的便宜。缓存省掉的恰恰是这部分便宜的、共用的工作。剩下的是每轮一个 token，也就是最贵的那种。
#
# ## 数一数 FLOP，看看什么仍是平方级
#
# 上下文长度为 t 时，一步解码在每一层要做两类乘法：token 乘权重，查询乘键。设模型的宽度为 d，那么开销的量级是
#
# - 没有缓存：t · d² + t² · d；
# - 有缓存：d² + t · d。
#
# 一层的权重是好几个矩阵，宽度并不都是 d：MLP 的更宽，K 和 V 的更窄。但它们都随 d 增长，所以一并算进 d²。下一个单元格会把它们逐个数清。


# %% tags=["claim-step-cost"]
def step_flops(t, cached):
    """FLOPs of the pass that follows t tokens in tiny-gqa; a multiply and an add are two."""
    rows, pairs = (1, t) if cached else (t, t * (t + 1) / 2)
    d, ff, kv = spec.hidden_size, spec.intermediate_size, spec.num_key_value_heads * spec.head_dim
    weights = 2 * d * d + 2 * d * kv + 3 * d * ff  # q and o; k and v; the three of the MLP
    return spec.num_hidden_layers * (2 * rows * weights + 4 * pairs * d)


contexts = np.logspace(1, 6, 26)
curves = [step_flops(contexts, cached) for cached in (False, True)]
picture(pictures.step_cost, contexts=contexts, without=curves[0], cached=curves[1])

# %% [markdown] lang="en"
# Both axes are logarithmic, so a slope is a power: 1 is linear, 2 is quadratic. The cache takes one off each: from 1 to 0 for short contexts, from 2
# to 1 for long ones.
#
# Per step, that is. "The cache turns quadratic into linear" is only half true for a whole answer, because a linear step
# is taken m times. Take n = m = 1,000 again, with the cache. A score is one query against one key. Guess how many scores
# one head of one layer computes in all.

# %% [markdown] lang="zh" en="043023ab"
# 两个坐标轴都是对数刻度，所以斜率就是幂次：1 是线性，2 是平方。缓存把两头的幂次各减去一：短上下文从 1 变成 0，长上下文从 2 变成 1。
#
# 这说的是每一步。对整个回答来说，“缓存把平方变成线性”只对了一半，因为线性的一步要走 m 次。仍取 n = m = 1,000，有缓存。一个查询对一个键，算一个分数。猜一猜：一层里的一个头，总共要算多少个分数？

# %%
predict("01.pairs", value=None)

# %% tags=["claim-quadratic"]
from mini_engine.geometry import attn_pairs

n = m = 1000
without = sum(s * (s + 1) // 2 for s in range(n, n + m))  # a pass of s tokens fills a triangle
with_cache = sum(range(1, n + m))  # token i is scored once, against i tokens
print(f"scores without a cache {without:,}, with a cache {with_cache:,}", end="")
print(f", ratio {without / with_cache:.1f}")
print(f"the package's calculator agrees: {without == attn_pairs(n, m, False)}")
every, saved = (sum(step_flops(t, cached) for t in range(n, n + m)) for cached in (False, True))
saved += step_flops(n, False) - step_flops(n, True)  # the prompt's own pass is not one token but n
print(f"FLOPs of tiny-gqa, all passes: {every:.3e} and {saved:.3e}, ratio {every / saved:.0f}")

# %% [markdown] lang="en"
# Projections and MLP became linear in the number of tokens. Scores did not. Every new token still looks at every old
# one, and no cache changes that.
#
# ## Prefill and decode are different work
#
# Both phases call the same function. Yet they ask different things of a machine. A pass reads all weights once, however
# many tokens share it. And it reads all of the cache. The table of embeddings does not count: a token looks up one row of it.

# %% [markdown] lang="zh" en="b6996f07"
# 投影和 MLP 的计算量变得与 token 数成线性关系，分数则没有。每个新 token 仍然要看过每一个旧 token，什么缓存也改变不了这一点。
#
# ## 预填充和解码是两种不同的工作
#
# 两个阶段调用的是同一个函数，对机器的要求却不一样。一轮前向要把所有权重读一遍，无论有多少 token 共用；还要把整个缓存读一遍。嵌入表不算在内：一个 token 只查其中一行。

# %% tags=["claim-phases"]
weight_bytes = 8 * sum(w.size for name, w in model.weights.items() if name != "model.embed_tokens.weight")
print("pass                      weight bytes per token   cache bytes per pass")
for name, new, context in [
    ("prefill, 1,000 tokens", 1000, 0),
    ("decode at context 64", 1, 64),
    ("decode at context 1,000", 1, 1000),
    ("decode at context 4,000", 1, 4000),
]:
    print(f"{name:<25} {weight_bytes / new:20,.0f} B {context * bytes_per_token:20,} B")

# %% [markdown] lang="en"
# Prefill multiplies matrices with matrices: many tokens share one reading of the weights. Decode reads all of them for
# one token, and the cache on top, more with every token. So a decode step gets slower as the text gets longer. On your
# machine, with your code, the quickest of eight steps:

# %% [markdown] lang="zh" en="b606dfa4"
# 预填充是矩阵乘矩阵：许多 token 共用一次权重读取。解码为了一个 token 就要读完全部权重，还要再读一遍缓存，而且 token 越多读得越多。所以文本越长，一步解码就越慢。用你的代码，在你的机器上看看，八步里取最快的一步：

# %% tags=["nbval-ignore-output", "claim-measured-step"]
engines.generate([[5] * 512], SamplingParams(temperature=0, max_tokens=14, ignore_eos=True), progress=False)
stats = engines.last_stats
print(f"engine: prefill {stats.prompt_tokens_per_second:,.0f} tokens/s, ", end="")
print(f"decode {stats.output_tokens_per_second:,.0f} tokens/s")
rng = np.random.default_rng(0)
for t in (64, 1000, 4000):
    store = KVCache(spec.num_hidden_layers, t + 8, spec.num_key_value_heads, spec.head_dim)
    for layer in range(spec.num_hidden_layers):
        store.append(layer, *rng.normal(size=(2, t, spec.num_key_value_heads, spec.head_dim)))
    times = []
    for i in range(8):
        start = time.perf_counter()
        model.forward([5], [t + i], attend_with(store))
        times.append(time.perf_counter() - start)
    print(f"your decode step at context {t:5,}: {min(times) * 1e3:6.2f} ms")

# %% [markdown] lang="en" tags=["self-check"]
# [Lesson 03](lessons/03_roofline.ipynb) puts numbers on that difference.
#
# ## Check yourself
#
# Two numbers. At 23,040 B a token, how many tokens of SmolLM2-135M fit into 1 GiB of cache? And a counter-example: a prompt of
# 500 tokens, an answer of one token. How many token-forwards does the cache save?

# %% [markdown] lang="zh" en="d60d8c0b"
# [第 03 课](lessons/03_roofline.ipynb)会用具体的数字说明这个差别。
#
# ## 自测
#
# 两个数。按每个 token 23,040 B 计算，1 GiB 的缓存放得下 SmolLM2-135M 的多少个 token？再看一个反例：提示词 500 个 token，回答只有一个 token。缓存省下多少次 token 前向？

# %% tags=["self-check"]
predict("01.tokens_in_a_gib", value=None)
predict("01.one_token", value=None)

# %% [markdown] lang="en" tags=["in-production"]
# ## In production
#
# Read in the 2026 main branch of vLLM, SGLang 0.5.23 and Transformers 5.24.0.
#
# | here | vLLM | SGLang | Transformers |
# |---|---|---|---|
# | `KVCache`, reserved in full | paged: `KVCacheManager` | paged: `MHATokenToKVPool` | `StaticCache` |
# | cache that grows by joining arrays | - | - | `DynamicCache`, the default of `generate` |
# | `append` | slot mapping and a write kernel | `set_kv_buffer` | `Cache.update` |
# | prefill and decode | no phases: a request catches up with its tokens | `ForwardMode.EXTEND`, `DECODE` | two calls of one loop |
#
# Where it loses: with an answer of one token, as in classification, a cache saves nothing and still takes its memory.

# %% [markdown] lang="zh" en="af8de83a"
# ## 在生产系统中
#
# 以下内容依据 2026 年 vLLM main 分支、SGLang 0.5.23 和 Transformers 5.24.0 的源码。
#
# | 本课 | vLLM | SGLang | Transformers |
# |---|---|---|---|
# | `KVCache`，一次预留到位 | 分页：`KVCacheManager` | 分页：`MHATokenToKVPool` | `StaticCache` |
# | 靠拼接数组来增长的缓存 | - | - | `DynamicCache`，`generate` 的默认选择 |
# | `append` | 槽位映射加写入 kernel | `set_kv_buffer` | `Cache.update` |
# | 预填充和解码 | 不分阶段：请求只管追上自己的 token | `ForwardMode.EXTEND`、`DECODE` | 同一个循环里的两处调用 |
#
# 什么时候得不偿失：回答只有一个 token，例如做分类，缓存什么也省不下，内存却照占。

# %% [markdown] lang="en" tags=["limits"]
# > **What this does not show**
# >
# > - The times are those of a very small model in float64 NumPy on a CPU. On a GPU the ratios are others.
# > - The FLOPs leave out norms, RoPE, softmax and the sampler. They also leave out the last product, which makes the
# >   logits.
# > - Greedy text agreed because no two tokens were nearly tied. With a near-tie, rounding may choose differently.
# > - Models with a sliding window, or with layers that are not attention, keep something else. Their bytes differ.
# > - One sequence only. With many, reserved but unused room becomes the problem ([lesson 06](lessons/06_fragmentation.ipynb)).

# %% [markdown] lang="zh" en="1613894c"
# > **这一课没有说明的事**
# >
# > - 这里的时间来自一个很小的模型，在 CPU 上用 float64 NumPy 测得。换成 GPU，比例会不同。
# > - FLOP 数没有计入归一化、RoPE、softmax 和采样，也没有计入最后算出 logits 的那次乘法。
# > - 贪心解码的文本能一致，是因为没有出现两个 token 分数几乎相等的情况。一旦出现，舍入就可能选出另一个。
# > - 带滑动窗口的模型，或者含有非注意力层的模型，保存的是别的东西，字节数也不同。
# > - 这里只有一个序列。序列一多，预留却没用上的空间就成了问题（[第 06 课](lessons/06_fragmentation.ipynb)）。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Why not cache the queries too?</summary>
#
# A query is used once, in its own row. Rows of the past are finished, so nobody asks for their queries again.
#
# </details>
# <details><summary>Does the cache make the first token faster?</summary>
#
# No. The first token needs the prompt's pass, with or without a cache. It can be faster only if part of the prompt was
# computed for somebody else before ([lesson 09](lessons/09_prefix_caching.ipynb)).
#
# </details>
# <details><summary>Is a cached answer the same answer?</summary>
#
# In exact arithmetic, yes. In floats it agrees to rounding. Here, in float64, the logits agreed within 1e-12.
#
# </details>
# <details><summary>Why keep K after the rotation by position, and not before?</summary>
#
# Because a token's position is fixed, so the rotation never has to be done again. The price is that such a cache cannot be
# moved to other positions.
#
# </details>

# %% [markdown] lang="zh" en="93cf9a3f"
# ## 常见问题
#
# <details><summary>为什么不把查询也缓存起来？</summary>
#
# 一个查询只在它自己那一行用一次。过去的行已经算完，再没有谁会用到它们的查询。
#
# </details>
# <details><summary>缓存能让第一个 token 更快吗？</summary>
#
# 不能。有没有缓存，第一个 token 都要先跑完提示词那一轮。只有当提示词的一部分之前已经为别的请求算过时，它才可能更快（[第 09 课](lessons/09_prefix_caching.ipynb)）。
#
# </details>
# <details><summary>用缓存得到的回答，还是同一个回答吗？</summary>
#
# 如果是精确运算，是的。浮点运算则只在舍入误差范围内一致。本课用 float64，logits 的差在 1e-12 以内。
#
# </details>
# <details><summary>为什么保存按位置旋转之后的 K，而不是旋转之前的？</summary>
#
# 因为 token 的位置是固定的，这样旋转只需做一次。代价是这样的缓存不能挪到别的位置。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - Causal attention never looks ahead, so past K and V never change, and keeping them is exact up to rounding.
# - It saves token-forwards: 1,499,500 become 1,999. Scores stay quadratic, and seconds gain less than counts.
# - It costs bytes that grow with every token, and every step reads them all.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | KV cache | KV Cache（KV 缓存） | "the model's memory" | kept keys and values, exact up to rounding |
# | prefill | 预填充 | "reading the prompt" | one pass over n tokens |
# | decode | 解码 | "generating" | one pass per new token |
# | causal mask | 因果掩码 | "no peeking" | row t sees keys 0 to t |
# | token-forward | token 前向 | "a step" | one token through the model once |
#
# **Open exercises.** *Easy:* let the cache grow by doubling in place of a fixed capacity. What is `nbytes` then?
# *Medium:* feed the prompt in pieces of 4 tokens. What has to stay the same, and which counts change? *Research:* which
# tokens' K and V could you drop with the least harm, and how would you measure the harm?
#
# **Back:** [00 · Start here](lessons/00_start_here.ipynb) · **Next:**
# [02 · How large is the cache?](lessons/02_kv_cache_size.ipynb)

# %% [markdown] lang="zh" en="1f75211d"
# ## 三句话总结
#
# - 因果注意力绝不看后面的 token，所以已有的 K 和 V 永远不变，留下来用，只差舍入误差。
# - 省下的是 token 前向：1,499,500 次变成 1,999 次。分数仍是平方级，秒数省得没有次数那么多。
# - 付出的是字节：每多一个 token 就多一份，而且每一步都要全部读一遍。
#
# | 术语 | 英文 | 常见说法 | 含义 |
# |---|---|---|---|
# | KV Cache（KV 缓存） | KV cache | “模型的记忆” | 留下来的键和值，除舍入误差外是精确的 |
# | 预填充 | prefill | “读提示词” | 一轮前向，跑 n 个 token |
# | 解码 | decode | “生成” | 每个新 token 一轮前向 |
# | 因果掩码 | causal mask | “不许偷看” | 第 t 行只看键 0 到 t |
# | token 前向 | token-forward | “一步” | 一个 token 过一遍模型 |
#
# **开放练习。** *简单*：让缓存以容量翻倍的方式增长，而不是固定容量。这时 `nbytes` 是多少？
# *中等*：把提示词按每 4 个 token 一段喂进去。哪些东西必须不变，哪些计数会变？
# *研究*：丢掉哪些 token 的 K 和 V 损害最小？又该怎样衡量这种损害？
#
# **上一课：** [00 · 从这里开始](lessons/00_start_here.ipynb) · **下一课：**
# [02 · 缓存有多大？](lessons/02_kv_cache_size.ipynb)
