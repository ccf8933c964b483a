# %% [markdown] lang="en" tags=["goals"]
# # 04 · GQA and MLA
#
# **Let heads share what a token leaves behind. Then leave something smaller behind.**
#
# 90 to 120 minutes, half of it for the exercises · NumPy, no GPU · after lesson 01; lessons 02 and 03 help
#
# After this lesson you can
#
# - write grouped attention that reads each shared head where it lies, and say what sharing saves and what it costs;
# - write latent attention that never makes a key or a value, and show that it is exact;
# - say why positions need a key of their own, and when to expand and when to absorb.

# %% [markdown] lang="zh" en="e7fbdafb"
# # 04 · GQA 与 MLA
#
# **先让多个头共用一个 token 留下的东西，再让它留下的东西变小。**
#
# 90 到 120 分钟，其中一半做练习 · 只用 NumPy，不需要 GPU · 先学第 01 课；学过第 02、03 课会更轻松
#
# 学完这一课，你能够：
#
# - 写出分组注意力，原地读取共用的头，并说清楚共用省了什么、代价是什么；
# - 写出潜在注意力，全程不生成任何键和值，并证明结果是精确的；
# - 说清楚位置信息为什么需要一个单独的键，以及什么时候该展开、什么时候该吸收。

# %%
import json
import time
from fractions import Fraction

import numpy as np

from mini_engine import LLM, SamplingParams, get_gpu, get_model
from mini_engine.attention import causal_attention, mla_expanded
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.panels import p04_gqa_and_mla as pictures
from mini_engine.models import load_model

tiny = load_model("tiny-gqa", backend="numpy")
model, tokenizer, spec = tiny.model, tiny.tokenizer, tiny.spec

# %% [markdown] lang="en"
# ## The pain
#
# In lesson 01 a token left 2 · L · K · D · b bytes in the cache. L layers, K key/value heads of size D, b bytes a
# number. Every decode step reads all of them, for every token so far.
#
# That adds up. Take 80 layers with 64 heads of 128. One chat of 8,192 tokens then keeps 20 GiB, and each new token
# reads all of it.
#
# Which of these factors can you lower? Fewer layers or smaller heads make another, weaker model. Fewer bits are [lesson
# 05](lessons/05_kv_quantization.ipynb). One factor looks innocent: K. Query heads have to differ, but do they each need
# K and V of their own?
#
# Take the extreme. All query heads share one. Guess first, then look at three models that differ in K only.

# %% [markdown] lang="zh" en="f0c5cf64"
# ## 痛点
#
# 在第 01 课里，一个 token 会在缓存里留下 2 · L · K · D · b 个字节：L 层，K 个 K/V 头，每个头的大小是 D，每个数 b 字节。每一步解码都要把到目前为止所有 token 的这些字节全读一遍。
#
# 这个量相当可观。假设有 80 层、64 个大小为 128 的头，一段 8,192 个 token 的对话就要占 20 GiB，而每个新 token 都要把它全部读一遍。
#
# 这些因子里，哪些能降？减少层数、缩小头，得到的是另一个更弱的模型。减少每个数的位数，是[第 05 课](lessons/05_kv_quantization.ipynb)的内容。剩下一个不起眼的因子：K。查询头必须各不相同，可是每个查询头都非得有自己的 K 和 V 吗？
#
# 我们直接走到极端：所有查询头共用一个。先猜一猜，再看三个只有 K 不同的模型。

# %%
predict("04.mqa_gib", value=None)

# %% tags=["claim-sharing-saves"]
print("80 layers, 64 query heads of size 128, 2 bytes a number")
print("                              bytes per token   8,192 tokens   times fewer")
for name, K in [("MHA, 64 K/V heads", 64), ("GQA, 8 K/V heads", 8), ("MQA, 1 K/V head", 1)]:
    per_token = 2 * 80 * K * 128 * 2
    print(f"{name:<30} {per_token:14,} {per_token * 8192 / 2**30:10g} GiB {64 // K:13}")

# %% [markdown] lang="en" tags=["claim-papers"]
# Three names for three choices of K:
#
# - Multi-head attention, **MHA**: K = H. Every query head has its own key and value.
# - Multi-query attention, **MQA**: K = 1. Shazeer 2019, [arXiv:1911.02150](https://arxiv.org/abs/1911.02150).
# - Grouped-query attention, **GQA**: anything between. Ainslie et al. 2023,
#   [arXiv:2305.13245](https://arxiv.org/abs/2305.13245) (2305.11147, which you may meet, is another paper).
#
# The fourth in the picture keeps something else. It comes in the second half: **MLA**, multi-head latent attention,
# DeepSeek-V2 2024, [arXiv:2405.04434](https://arxiv.org/abs/2405.04434).

# %% [markdown] lang="zh" en="961a0eba"
# K 的三种取法，三个名字：
#
# - 多头注意力，**MHA**：K = H。每个查询头都有自己的键和值。
# - 多查询注意力，**MQA**：K = 1。Shazeer 2019，[arXiv:1911.02150](https://arxiv.org/abs/1911.02150)。
# - 分组查询注意力，**GQA**：介于两者之间。Ainslie 等 2023，[arXiv:2305.13245](https://arxiv.org/abs/2305.13245)（有时会看到写成 2305.11147，那是另一篇论文）。
#
# 图中第四种保存的是别的东西，留到本课后半部分再讲：**MLA**，多头潜在注意力，DeepSeek-V2 2024，[arXiv:2405.04434](https://arxiv.org/abs/2405.04434)。

# %% tags=["diagram"]
svg(*pictures.four_caches())

# %% [markdown] lang="en"
# ## Exercise 4.1 - grouped attention, in place
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 8 lines
#
# In lesson 01 you could repeat k and v to H heads and go on as before. The numbers were right. But a copy for each
# query head moves as many bytes as multi-head attention does, so all that sharing saves is lost again.
#
# Write `gqa_attention(q, k, v, scale, offset)` that reads each K/V head where it lies.
#
# - `q[T, H, D]`, `k[S, K, D]`, `v[S, K, D]`, result `[T, H, D]`, in float64. H is a multiple of K.
# - Query head h reads K/V head `h // (H // K)`: neighbours share.
# - Row t stands at place offset + t and sees tokens 0 to offset + t. S may be larger than offset + T.
# - Use the scale that you are given. Large scores must not overflow.
# - Do not copy k and v for each query head. The check measures the memory that your call takes at once.
#
# Small case: H = 4, K = 2. Heads 0 and 1 read K/V head 0, heads 2 and 3 read K/V head 1.

# %% [markdown] lang="zh" en="0cdbc950"
# ## 练习 4.1 - 原地分组注意力
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 8 行
#
# 在第 01 课里，你可以先把 k 和 v 重复成 H 个头，再照常计算。数值是对的。可是给每个查询头都复制一份，搬运的字节就和多头注意力一样多，共用省下来的又全赔了进去。
#
# 写出 `gqa_attention(q, k, v, scale, offset)`，让每个 K/V 头在原地被读取。
#
# - `q[T, H, D]`、`k[S, K, D]`、`v[S, K, D]`，结果是 `[T, H, D]`，用 float64。H 是 K 的整数倍。
# - 查询头 h 读第 `h // (H // K)` 个 K/V 头：相邻的头共用。
# - 第 t 行的位置是 offset + t，看得到 token 0 到 offset + t。S 可能大于 offset + T。
# - scale 用传进来的那个。分数很大时不能溢出。
# - 不要为每个查询头复制 k 和 v。检查会测量你的调用同时占用多少内存。
#
# 小例子：H = 4，K = 2。第 0、1 个头读第 0 个 K/V 头，第 2、3 个头读第 1 个 K/V 头。


# %% exercise="gqa_attention"
def gqa_attention(q, k, v, scale, offset=0):
    """q[T, H, D], k[S, K, D], v[S, K, D] -> [T, H, D]; query heads share K/V heads in place."""
    ### BEGIN SOLUTION
    (T, H, D), (S, K, _) = q.shape, k.shape
    groups = q.reshape(T, K, H // K, D)
    scores = scale * np.einsum("tkgd,skd->kgts", groups, k)
    scores = np.where(np.tri(T, S, offset, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return np.einsum("kgts,skd->tkgd", weights, v).reshape(T, H, D)
    ### END SOLUTION


# %% test="gqa_attention" points=2
gqa_attention = check("04.gqa_attention", gqa_attention)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Leave k and v alone and put the queries into groups. `q.reshape(T, K, H // K, D)` is free: neighbours already lie side
# by side.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. Groups `[T, K, G, D]`, with G = H // K.
# 2. Scores `[K, G, T, S]`: `np.einsum("tkgd,skd->kgts", groups, k)`. The letter k stands on both sides, g on one only.
# 3. Mask with `np.tri(T, S, offset)`, then softmax over the last axis, as in lesson 01.
# 4. `np.einsum("kgts,skd->tkgd", weights, v)`, then reshape to `[T, H, D]`.
#
# </details>
# <details><summary>Hint 3: "read where they lie" fails</summary>
#
# `np.repeat` copies. So does `q[:, None] * k`, which holds all products before it adds them. `np.einsum` and `@` add as
# they go.
#
# </details>
#
# ## Sharing is multi-head attention with equal heads
#
# Repeat k and v, and grouped attention becomes multi-head attention, number for number. So it is no new mathematics. It
# is multi-head attention whose heads are forced to agree. The first cell shows that, and runs the engine on your
# function. The second one shows what a copy costs on your machine. It takes the fastest of five calls, because the first
# ones also wait for memory that the system has to hand out.

# %% [markdown] lang="zh" en="e6af0be7"
# <details><summary>提示 1：从哪里入手</summary>
#
# k 和 v 不要动，把查询分组。`q.reshape(T, K, H // K, D)` 不花任何代价，因为同组的查询头本来就挨在一起。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 分组后的形状是 `[T, K, G, D]`，其中 G = H // K。
# 2. 分数 `[K, G, T, S]`：`np.einsum("tkgd,skd->kgts", groups, k)`。字母 k 两边都有，g 只在一边。
# 3. 用 `np.tri(T, S, offset)` 做掩码，再沿最后一个轴做 softmax，和第 01 课一样。
# 4. `np.einsum("kgts,skd->tkgd", weights, v)`，再 reshape 成 `[T, H, D]`。
#
# </details>
# <details><summary>提示 3：“read where they lie”这一项不通过</summary>
#
# `np.repeat` 会复制。`q[:, None] * k` 也一样，它先存下所有乘积，再求和。`np.einsum` 和 `@` 则是边乘边加。
#
# </details>
#
# ## 共用，就是各头相同的多头注意力
#
# 把 k 和 v 按头重复之后，分组注意力就成了多头注意力，每个数都一样。所以它并不是新的数学，只是要求同一组的头用相同的 K 和 V。下面第一个单元格验证这一点，并让引擎跑你写的函数；第二个单元格看看复制在你的机器上要付出多少。它取五次调用里最快的一次，因为头几次还要等系统分配内存。

# %% tags=["claim-gqa-is-mha", "claim-gqa-in-engine"]
rng = np.random.default_rng(0)
q = rng.normal(size=(5, 8, 32))
for K in (8, 2, 1):
    k, v = rng.normal(size=(2, 5, K, 32))
    multi_head = causal_attention(q, *(np.repeat(x, 8 // K, axis=1) for x in (k, v)), 0.2)  # 8 heads of K and V
    same = bool(np.abs(gqa_attention(q, k, v, 0.2) - multi_head).max() < 1e-12)
    print(f"K = {K}: equal to multi-head attention on repeated K and V within 1e-12: {same}")

prompt, params = "The young lady", SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
mine = LLM(tiny, attention=gqa_attention).generate([prompt], params, progress=False)[0].outputs[0]
engines = LLM(tiny).generate([prompt], params, progress=False)[0].outputs[0]
print(f"\n{prompt}{mine.text}")
print(f"same tokens as the engine: {mine.token_ids == engines.token_ids}")

# %% tags=["nbval-ignore-output", "claim-copies-cost"]
rng = np.random.default_rng(1)
q, (k, v) = rng.normal(size=(1, 32, 128)), rng.normal(size=(2, 4096, 4, 128))


def copies(q, k, v, scale, offset):
    """K and V repeated first, for each query head."""
    return gqa_attention(q, *(np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v)), scale, offset)


print("32 query heads on 4 K/V heads of 128, one new token after 4,095, float64")
for name, attention, heads in [("in place", gqa_attention, 4), ("copied for each query head", copies, 32)]:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        attention(q, k, v, 0.1, 4095)
        seconds.append(time.perf_counter() - start)
    mebibytes, fastest = 2 * 4096 * heads * 128 * 8 / 2**20, min(seconds) * 1e3
    print(f"{name:<27} reads {mebibytes:5.0f} MiB of K and V, {fastest:7.1f} ms")

# %% [markdown] lang="en"
# ## What sharing costs
#
# Heads that are forced to agree can say less. Can a trained model be changed to share? The GQA paper averages the K/V
# heads of each group and then trains on. Averaging weights averages the keys too, because a projection is linear. So
# you can try the first step right here: let tiny-gqa's two K/V heads become one, and measure the loss. The text is from
# the first chapter of *Emma*. The model was trained on other chapters of that book, and never saw this one.

# %% [markdown] lang="zh" en="9f502084"
# ## 共用的代价
#
# 几个头被迫用同样的 K 和 V，表达能力自然会变弱。已经训练好的模型，还能改成共用吗？GQA 论文的做法是：把每组的 K/V 头取平均，然后继续训练。投影是线性的，所以对权重取平均，就等于对键取平均。第一步你在这里就能试：把 tiny-gqa 的两个 K/V 头合成一个，再看损失。用的文本取自《爱玛》第一章；模型训练时读过这本书的其他章节，但从没见过这一章。

# %% tags=["claim-mean-pooling"]
held_out = tokenizer.encode("""\
Emma Woodhouse, handsome, clever, and rich, with a comfortable home and happy disposition, seemed to \
unite some of the best blessings of existence; and had lived nearly twenty-one years in the world \
with very little to distress or vex her.

She was the youngest of the two daughters of a most affectionate, indulgent father; and had, in \
consequence of her sister's marriage, been mistress of his house from a very early period. Her \
mother had died too long ago for her to have more than an indistinct remembrance of her caresses; \
and her place had been supplied by an excellent woman as governess, who had fallen little short of a \
mother in affection.""")


def loss(share):
    """Nats per token of the text, with K and V of each layer changed by `share`."""

    def attend(layer, q, k, v):
        return gqa_attention(q, share(k), share(v), spec.head_dim**-0.5)

    logits = model.forward(held_out, range(len(held_out)), attend)[:-1]
    logits -= logits.max(axis=-1, keepdims=True)
    likelihood = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -likelihood[np.arange(len(held_out) - 1), held_out[1:]].mean()


for name, share in {
    "two K/V heads, as trained": lambda x: x,
    "one: their mean": lambda x: x.mean(axis=1, keepdims=True),
    "one: head 0 for all": lambda x: x[:, :1],
    "one: head 1 for all": lambda x: x[:, 1:],
}.items():
    nats = loss(share)
    print(f"{name:<27} loss {nats:.2f}: as unsure as among {np.exp(nats):3.0f} tokens")

# %% [markdown] lang="en"
# Every kind of sharing hurts at once, and training has to mend it. The paper trains on for 5% of the original compute.
# After that, the mean was better there than one head for all. Here, before any training, head 1 alone is ahead of the
# mean. So measure, and do not take a recipe for a law.
#
# A model can also be trained with shared heads from the start. Llama-2-70B was: 8 K/V heads for its 64 query heads.
#
# ## Keep something else
#
# MQA is the floor of sharing: there is no head to take away from one. To go on, change *what* is kept.
#
# K and V are computed from the hidden state h of a token. Then keep h, and compute K and V when they are needed? In
# DeepSeek-V2, h has 5,120 numbers, K and V of 128 heads have 32,768. Smaller, and exact. But each step would send every
# cached h through two large matrices.
#
# MLA does two things more. It keeps a **latent** c, a learned summary of h with 512 numbers. (A small key for the
# position comes to it, further down.) And in decode it never makes K and V at all. First the plain way, which does make
# them:
#
# $$c = W^{DKV} h \qquad k_i = W^{UK}_i c \qquad v_i = W^{UV}_i c \qquad \text{for each head } i$$
#
# | symbol | meaning | tiny-mla | DeepSeek-V2 |
# |---|---|---|---|
# | H | query heads | 8 | 128 |
# | Dc | size of the latent c | 64 | 512 |
# | Dn | size of a head's key that comes from the latent | 32 | 128 |
# | Dv | size of a head's value | 32 | 128 |
# | Dr | size of the rope key, explained below | 16 | 64 |
#
# D is for down, U for up. The weights below are random, in tiny-mla's sizes. Trained ones follow.

# %% [markdown] lang="zh" en="d0665d85"
# 不管怎么共用，一开始都会变差，要靠训练补回来。论文用原来 5% 的算力继续训练，之后取平均的效果好于所有头共用其中一个。而在这里还没有继续训练，只用第 1 个头反而比取平均好。所以要自己测，不要把经验当成定律。
#
# 模型也可以从一开始就带着共用的头训练。Llama-2-70B 就是这样：64 个查询头，8 个 K/V 头。
#
# ## 换一样东西来存
#
# 共用这条路走到 MQA 就到头了：只剩一个头，没法再减。要再往前走，就得改变存的*是什么*。
#
# K 和 V 是由 token 的隐藏状态 h 算出来的。那就存 h，用到时再算 K 和 V，行不行？在 DeepSeek-V2 里，h 有 5,120 个数，128 个头的 K 和 V 有 32,768 个。更小，也完全精确。可是每一步都要让所有缓存的 h 过一遍两个大矩阵。
#
# MLA 多做了两件事。第一，它存的是低秩的**潜在向量**（latent）c，即从 h 学出来的摘要，有 512 个数。（另外还有一个表示位置的小键，后面再讲。）第二，解码时它根本不生成 K 和 V。先看最直接的做法，也就是把它们都算出来：
#
# $$c = W^{DKV} h \qquad k_i = W^{UK}_i c \qquad v_i = W^{UV}_i c \qquad \text{for each head } i$$
#
# | 符号 | 含义 | tiny-mla | DeepSeek-V2 |
# |---|---|---|---|
# | H | 查询头数 | 8 | 128 |
# | Dc | 潜在向量 c 的大小 | 64 | 512 |
# | Dn | 每个头的键中，来自潜在向量的那部分的大小 | 32 | 128 |
# | Dv | 每个头的值的大小 | 32 | 128 |
# | Dr | rope 键的大小，后面会讲 | 16 | 64 |
#
# 上标 D 表示降维（down），U 表示升维（up）。下面的权重是随机的，大小与 tiny-mla 相同；训练好的权重随后登场。

# %% tags=["claim-projections"]
H, Dn, Dv, Dc, S = 8, 32, 32, 64, 40
rng = np.random.default_rng(2)
h = rng.normal(size=(S, 256))  # hidden states of 40 tokens, 256 wide
w_dkv = rng.normal(size=(Dc, 256)) / 16
w_uk, w_uv = rng.normal(size=(H, Dn, Dc)) / 8, rng.normal(size=(H, Dv, Dc)) / 8
latent = h @ w_dkv.T
keys = np.einsum("hnc,sc->shn", w_uk, latent)
values = np.einsum("hvc,sc->shv", w_uv, latent)
print(f"h {h.shape} -> latent {latent.shape} -> keys {keys.shape} and values {values.shape}")
both = keys[0].size + values[0].size
print(f"numbers per token: h {h[0].size}, keys and values {both}, latent {latent[0].size}")
v2 = get_model("deepseek-v2")
kept = 2 * v2.num_attention_heads * v2.qk_nope_head_dim
print(f"DeepSeek-V2: h {v2.hidden_size:,}, keys and values {kept:,}, latent {v2.kv_lora_rank}")

# %% [markdown] lang="en"
# ## Exercise 4.2 - move the matrix to the query
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 2 lines
#
# Now the idea that makes MLA fast. A score is a product of three things, and brackets may move:
#
# $$q \cdot (W c) \;=\; (W^\top q) \cdot c$$
#
# On the left, every cached token needs its key. On the right, the query changes once, and then meets the latents as
# they are. The matrix is **absorbed** into the query.
#
# Write `absorbed_scores(q, latent, w_uk)`.
#
# - `q[H, Dn]` is one query per head, `latent[S, Dc]` is in the cache, `w_uk[H, Dn, Dc]` has a matrix per head.
# - Return `[H, S]`: the product of head h's query with token s's key `w_uk[h] @ latent[s]`. No scale, no softmax.
# - Make no key, not even one at a time. The check also uses numbers with which a key would be infinite, and the score is
#   not.
#
# Small case, one head: q = [2, 3], c = [3, 1], W = [[5, 7], [1, 0]]. The key is [22, 3] and the score 53. By the other
# bracket the query is [13, 14], and the score is 13 · 3 + 14 · 1 = 53.

# %% [markdown] lang="zh" en="8abdc976"
# ## 练习 4.2 - 把矩阵挪到查询一侧
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 2 行
#
# 现在来看让 MLA 变快的关键。一个分数是三样东西的乘积，括号可以挪：
#
# $$q \cdot (W c) \;=\; (W^\top q) \cdot c$$
#
# 左边，每个缓存的 token 都得先算出自己的键。右边，查询只变换一次，然后直接和原样的潜在向量做点积。矩阵被**吸收**进了查询。
#
# 写出 `absorbed_scores(q, latent, w_uk)`。
#
# - `q[H, Dn]` 是每个头一个查询，`latent[S, Dc]` 来自缓存，`w_uk[H, Dn, Dc]` 是每个头一个矩阵。
# - 返回 `[H, S]`：头 h 的查询与 token s 的键 `w_uk[h] @ latent[s]` 的点积。不乘 scale，也不做 softmax。
# - 不要生成键，一次只生成一个也不行。检查还会用一组特别的数：键会变成无穷大，而分数不会。
#
# 小例子，只有一个头：q = [2, 3]，c = [3, 1]，W = [[5, 7], [1, 0]]。键是 [22, 3]，分数是 53。换一种括号，查询变成 [13, 14]，分数是 13 · 3 + 14 · 1 = 53。


# %% exercise="absorbed_scores"
def absorbed_scores(q, latent, w_uk):
    """q[H, Dn], latent[S, Dc], w_uk[H, Dn, Dc] -> [H, S]: scores against keys that are never made."""
    ### BEGIN SOLUTION
    query = np.einsum("hn,hnc->hc", q, w_uk)
    return query @ latent.T
    ### END SOLUTION


# %% test="absorbed_scores" points=1
absorbed_scores = check("04.absorbed_scores", absorbed_scores)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# What shape has `w_uk[h].T @ q[h]`? It is as long as a latent.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# First all queries at once: `np.einsum("hn,hnc->hc", q, w_uk)`. Then one product with all latents, `@ latent.T`.
#
# </details>
# <details><summary>Hint 3: "no key is made" fails</summary>
#
# Then `w_uk` met `latent` before `q` did, for all tokens at once or for one at a time. Brackets decide: (q W) c, not
# q (W c). One `np.einsum` of all three, q and w_uk first, is right too. But it multiplies all three for every place of
# the result, which is more work than making the keys.
#
# </details>
#
# ## The same on the side of the values
#
# A head's result is a weighted sum of values, and each value is W c. A sum and a matrix may change places too:
#
# $$\sum_s p_s\,(W^{UV} c_s) \;=\; W^{UV} \Big(\sum_s p_s\, c_s\Big)$$
#
# Sum latents first, and make one value of the sum. After that comes the output matrix W_O, so the two could even be
# multiplied beforehand. The next cell compares both sides of each: the scores, the sum of values, and the output.
# Exact in mathematics, equal to rounding in float64.

# %% [markdown] lang="zh" en="48e411fc"
# <details><summary>提示 1：从哪里入手</summary>
#
# `w_uk[h].T @ q[h]` 的形状是什么？它和潜在向量一样长。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先一次算出所有头的查询：`np.einsum("hn,hnc->hc", q, w_uk)`。再和所有潜在向量做一次乘法：`@ latent.T`。
#
# </details>
# <details><summary>提示 3：“no key is made”这一项不通过</summary>
#
# 说明 `w_uk` 在遇到 `q` 之前先遇到了 `latent`，不管是所有 token 一起算，还是一次算一个。关键在括号：要 (q W) c，不要 q (W c)。三者写进同一个 `np.einsum`，只要 q 和 w_uk 排在前面，结果也算对；只是结果里的每个数都要把三者逐个相乘，比生成键还费事。
#
# </details>
#
# ## 值这一侧也一样
#
# 一个头的输出是值的加权和，而每个值都是 W c。求和与矩阵也可以交换：
#
# $$\sum_s p_s\,(W^{UV} c_s) \;=\; W^{UV} \Big(\sum_s p_s\, c_s\Big)$$
#
# 先对潜在向量求和，再由这个和算出一个值。后面紧接着就是输出矩阵 W_O，所以这两个矩阵甚至可以事先乘好。下一个单元格逐一比较等号两边：分数、值的加权和、输出。数学上完全相等，在 float64 下只差舍入。


# %% tags=["claim-absorption", "claim-value-side"]
def largest_difference(a, b):
    """Relative to the largest number."""
    return np.abs(a - b).max() / np.abs(b).max()


rng = np.random.default_rng(3)
q = rng.normal(size=(H, Dn))
p = rng.dirichlet(np.ones(S), size=H)  # weights of each head, which sum to 1
w_o = rng.normal(size=(256, H, Dv)) / 16
one_by_one = np.einsum("hs,shv->hv", p, values)
summed = np.einsum("hvc,hc->hv", w_uv, p @ latent)
together = np.einsum("dhv,hvc->dhc", w_o, w_uv)  # W_O and W_UV, multiplied beforehand
for name, left, right in [
    ("scores: absorbed against keys", absorbed_scores(q, latent, w_uk), np.einsum("hn,shn->hs", q, keys)),
    ("values: sum first against values first", summed, one_by_one),
    ("output: W_O W_UV in one against one after the other",
     np.einsum("dhc,hc->d", together, p @ latent), np.einsum("dhv,hv->d", w_o, one_by_one)),
]:  # fmt: skip
    print(f"{name:<52} equal within 1e-12: {bool(largest_difference(left, right) < 1e-12)}")

# %% [markdown] lang="en"
# ### Absorb at run time, not in the weights
#
# Papers write that W_UK "is absorbed into W_Q", as if you multiplied the two once and threw the factors away. The
# result would be right.
#
# DeepSeek-V2 makes queries in two steps as well: from h to 1,536 numbers, and from these each head's query of 128. (The
# 1,536 are not kept: a query is used once.) The second step is W_Q here, 1,536 x 128 for one head. W_UK goes on from 128
# to the latent's 512. How large is the product of the two?

# %% [markdown] lang="zh" en="ea7dcb52"
# ### 运行时吸收，不要乘进权重
#
# 论文里说 W_UK “被吸收进 W_Q”，听起来像是把两个矩阵乘好，原来的就不要了。这样结果也对。
#
# DeepSeek-V2 的查询也分两步算：先从 h 得到 1,536 个数，再由它们得到每个头 128 个数的查询。（这 1,536 个数不进缓存，因为查询只用一次。）这里的 W_Q 指第二步，一个头是 1,536 x 128。W_UK 接着把 128 变成潜在向量的 512。那么两者的乘积有多大？

# %%
predict("04.static_weights", value=None)

# %% tags=["claim-three-times"]
print("one head                          two factors     product   times")
for name, side in [
    ("deepseek-v2", "key"),
    ("deepseek-v2-lite", "key"),
    ("deepseek-v2", "value"),
]:
    m = get_model(name)
    Dc_, D_ = m.kv_lora_rank, m.qk_nope_head_dim  # value heads have the same size in these two
    outer = m.hidden_size if side == "value" else m.q_lora_rank or m.hidden_size
    factors, product = outer * D_ + D_ * Dc_, outer * Dc_
    print(f"{name:<17} {side + ' side':<11} {factors:14,} {product:11,} {product / factors:7.1f}")

# %% [markdown] lang="en"
# A head is a narrow door of 128 between two wide rooms. The product has no door. It takes three times the weights to
# store, and to read at every step. So engines keep the factors, and multiply the query by W_UK when it comes.
#
# ## Where absorption breaks
#
# So far no token knew where it stands. In most models, tiny-gqa among them, queries and keys are **rotated** by their
# position before they meet. Two numbers of a key are taken as a point in the plane, and turned by an angle that grows
# with the position. Other pairs turn slower. When query and key are both turned, their product depends on the distance
# between them only. That is rotary embedding, **RoPE**.
#
# Call the rotation by position t "R_t". Put it on MLA's key, and a score becomes
#
# $$(R_t\, q) \cdot (R_s\, W c_s) \;=\; q \cdot (R_{s-t}\, W)\, c_s$$
#
# Between q and c stands a matrix that depends on the distance from s to t. Which one do you absorb? Four attempts, each
# of them natural. All in float64, so no error below comes from rounding. The query stands at position 39.

# %% [markdown] lang="zh" en="a9cc4df5"
# 一个头就像两间大厅之间的一扇窄门，门宽只有 128。乘积里没有这扇门，权重变成三倍，不仅要存，每一步还要读。所以引擎保留两个因子，等查询来了再乘 W_UK。
#
# ## 吸收在哪里行不通
#
# 到目前为止，token 都不知道自己在第几个位置。在大多数模型里（包括 tiny-gqa），查询和键在做点积之前，都要按位置**旋转**。键里每两个数看作平面上的一个点，转过一个角度，位置越靠后，角度越大；各对数转动的快慢不同。查询和键都转过以后，它们的点积只取决于两者的距离。这就是旋转位置编码，**RoPE**。
#
# 把位置 t 的旋转记作 R_t。如果对 MLA 的键也这样做，分数就变成
#
# $$(R_t\, q) \cdot (R_s\, W c_s) \;=\; q \cdot (R_{s-t}\, W)\, c_s$$
#
# q 和 c 之间夹着的矩阵，取决于 s 到 t 的距离。那该吸收哪一个？下面四种办法，都是很自然的想法。全部用 float64，所以误差都不是舍入造成的。查询在位置 39。


# %% tags=["claim-rope-breaks"]
def rotate(x, positions):
    """RoPE: x[..., n, d] with one position for each of n rows; number i turns with number i + d/2."""
    half = x.shape[-1] // 2
    angles = np.asarray(positions)[:, None] * 10_000.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


rng = np.random.default_rng(4)
W, query = w_uk[0], rng.normal(size=(1, Dn))  # of head 0
places, now = np.arange(S), S - 1  # the query stands at the last place
right = rotate(query, [now]) @ rotate(latent @ W.T, places).T
turned_back = rotate(query.repeat(S, axis=0), now - places)  # one query for each distance
attempts = {
    "absorb the rotated query": rotate(query, [now]) @ W @ latent.T,
    "and rotate the latent": rotate(query, [now]) @ W @ rotate(latent, places).T,
    "rotate neither": query @ W @ latent.T,
    "one query for each distance": (turned_back @ W * latent).sum(axis=-1)[None],
}
print("largest error, relative        distance 0     1 to 9   10 to 38   39: position 0")
for name, scores in attempts.items():
    error = np.abs(scores - right)[0, ::-1] / np.abs(right).max()  # by distance from the query
    worst = (error[0], error[1:10].max(), error[10:39].max(), error[39])
    shown = ["below 1e-12" if e < 1e-12 else f"{e:11.2f}" for e in worst]
    print(f"{name:<30}{'  '.join(shown)}")

# %% [markdown] lang="en"
# The first two are right for the token at position 0 only, which is not turned. The third is right at distance 0 only,
# where query and key are turned alike. The last is right everywhere. But it absorbs a query for each cached token, which
# costs as much as making all keys. The saving is gone.
#
# ## A key for the position alone
#
# So take the rotation out of the way. MLA gives each score a second, small part that does nothing but carry the
# position:
#
# $$\text{score}_{ts} \;=\; \text{scale}\cdot\Big(q^{\text{nope}}_t \cdot (W c_s) \;+\; (R_t\, q^{\text{rope}}_t) \cdot (R_s\, k^{\text{rope}}_s)\Big)$$
#
# "nope" stands for no position embedding. Nothing is rotated in the first part, so it absorbs. In the second part
# nothing has to be absorbed. The rope key comes straight from h, it is kept already rotated, and **all heads share
# one**. It is called **decoupled**, and it has Dr numbers.
#
# Two questions before you write it. What does DeepSeek-V2 keep of a token, in one layer? And what belongs under the
# root of the scale?

# %% [markdown] lang="zh" en="fc13fd99"
# 前两种只对位置 0 的 token 正确，因为那里没有转动。第三种只在距离为 0 时正确，因为查询和键转得一样多。最后一种处处正确，可是要为每个缓存的 token 各吸收一个查询，代价和生成所有的键一样大，等于白省了。
#
# ## 一个只管位置的键
#
# 既然旋转碍事，就把它挪开。MLA 给每个分数加上第二部分，很小，只负责位置：
#
# $$\text{score}_{ts} \;=\; \text{scale}\cdot\Big(q^{\text{nope}}_t \cdot (W c_s) \;+\; (R_t\, q^{\text{rope}}_t) \cdot (R_s\, k^{\text{rope}}_s)\Big)$$
#
# “nope”意思是不带位置编码（no position embedding）。第一部分没有旋转，所以可以吸收；第二部分没有什么要吸收的。rope 键直接由 h 算出，旋转之后才存，而且**所有头共用一个**。这就是**解耦 RoPE**（decoupled RoPE），这个键有 Dr 个数。
#
# 动手之前先答两个问题。DeepSeek-V2 在每一层里，为一个 token 存多少个数？scale 的根号下又该是多少？

# %%
predict("04.cached_numbers", value=None)
predict("04.scale_root", value=None)

# %% [markdown] lang="en"
# ## Exercise 4.3 - attend to the latents
#
# Difficulty 4/5 · importance 5/5 · 25 minutes · about 9 lines
#
# Write `mla_decode(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset)`, the whole of it. It goes into the
# engine.
#
# - `q_nope[T, H, Dn]` and `q_rope[T, H, Dr]` are the queries, the second part already rotated.
# - `latent[S, Dc]` and `k_rope[S, Dr]` are the cache, k_rope already rotated.
# - `w_uk[H, Dn, Dc]` and `w_uv[H, Dv, Dc]` are the up projections. The result is `[T, H, Dv]`, in float64.
# - The scale multiplies the sum of both parts. Use the one that you are given.
# - Row t sees tokens 0 to offset + t. S may be larger than offset + T.
# - Make no key and no value of a cached token, not even one at a time. The check looks as in exercise 4.2.
# - Large scores must not overflow.
#
# Small case: one head, T = 1, S = 1. The only weight is 1, so the result is `w_uv[0] @ latent[0]`, whatever the scores.

# %% [markdown] lang="zh" en="1cee130b"
# ## 练习 4.3 - 直接在潜在向量上做注意力
#
# 难度 4/5 · 重要性 5/5 · 25 分钟 · 大约 9 行
#
# 写出完整的 `mla_decode(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset)`，它会被放进引擎里跑。
#
# - `q_nope[T, H, Dn]` 和 `q_rope[T, H, Dr]` 是查询，第二部分已经旋转过。
# - `latent[S, Dc]` 和 `k_rope[S, Dr]` 是缓存，k_rope 已经旋转过。
# - `w_uk[H, Dn, Dc]` 和 `w_uv[H, Dv, Dc]` 是升维投影。结果是 `[T, H, Dv]`，用 float64。
# - scale 乘在两部分之和上，用传进来的那个。
# - 第 t 行看得到 token 0 到 offset + t。S 可能大于 offset + T。
# - 不要为缓存的 token 生成键和值，一次只生成一个也不行。检查的办法和练习 4.2 一样。
# - 分数很大时不能溢出。
#
# 小例子：一个头，T = 1，S = 1。唯一的权重是 1，所以不管分数是多少，结果都是 `w_uv[0] @ latent[0]`。


# %% exercise="mla_decode"
def mla_decode(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
    """Latent attention, absorbed -> [T, H, Dv]; row t sees tokens 0..offset+t."""
    ### BEGIN SOLUTION
    query = np.einsum("qhn,hnc->qhc", q_nope, w_uk)
    scores = np.einsum("qhc,sc->hqs", query, latent) + np.einsum("qhr,sr->hqs", q_rope, k_rope)
    visible = np.tri(len(q_nope), len(latent), offset, dtype=bool)
    scores = np.where(visible, scale * scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    summed = np.einsum("hqs,sc->qhc", weights, latent)
    return np.einsum("qhc,hvc->qhv", summed, w_uv)
    ### END SOLUTION


# %% test="mla_decode" points=3
mla_decode = check("04.mla_absorbed", mla_decode)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# It is multi-query attention with one odd head. Its key is the latent and the rope key side by side. Its value is the
# latent again.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. Absorb: `query[T, H, Dc]`, as in exercise 4.2 with one more axis.
# 2. Two scores of shape `[H, T, S]`: query with latent, q_rope with k_rope. Add them, then scale.
# 3. Mask and softmax, as before.
# 4. Sum latents by the weights: `[T, H, Dc]`. Then each head's w_uv: `np.einsum("qhc,hvc->qhv", summed, w_uv)`.
#
# </details>
# <details><summary>Hint 3: "the given scale" fails</summary>
#
# Multiply once, after adding the parts. Do not compute a scale from a shape: after absorption, the shapes mislead.
#
# </details>
# <details><summary>Hint 4: "no key and no value is made" fails</summary>
#
# The message says which of the two. On the key's side, q_nope and w_uk come first. On the value's side, the weights and
# the latents come first, and w_uv meets their sum.
#
# </details>
#
# ## Does the second key repair it?
#
# Here is the comparison that failed with RoPE on the latent key. The engine's own `mla_expanded` makes every key and
# every value. And what if you take the size of the absorbed query for the scale?

# %% [markdown] lang="zh" en="d60fd2fd"
# <details><summary>提示 1：从哪里入手</summary>
#
# 这就是多查询注意力，只是那个共用的头有点特别：它的键是潜在向量和 rope 键拼在一起，它的值还是潜在向量。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 吸收：`query[T, H, Dc]`，和练习 4.2 一样，只是多一个轴。
# 2. 两个形状为 `[H, T, S]` 的分数：query 对潜在向量，q_rope 对 k_rope。先相加，再乘 scale。
# 3. 掩码和 softmax，照旧。
# 4. 按权重对潜在向量求和：`[T, H, Dc]`。再乘每个头的 w_uv：`np.einsum("qhc,hvc->qhv", summed, w_uv)`。
#
# </details>
# <details><summary>提示 3：“the given scale”这一项不通过</summary>
#
# 两部分相加之后再乘，只乘一次。不要从形状去推 scale：吸收之后，形状会误导你。
#
# </details>
# <details><summary>提示 4：“no key and no value is made”这一项不通过</summary>
#
# 报错会说明是键还是值。键这一侧，先让 q_nope 和 w_uk 相乘；值这一侧，先用权重对潜在向量求和，再乘 w_uv。
#
# </details>
#
# ## 第二个键解决问题了吗？
#
# 前面把 RoPE 直接加在键上，结果对不上。现在再比一次：引擎自己的 `mla_expanded` 会算出每一个键和每一个值。另外，如果按吸收后查询的长度来定 scale，会怎样？

# %% tags=["claim-decoupled-works", "claim-mla-scale"]
Dr, T, rng = 16, 3, np.random.default_rng(5)
q_nope = rng.normal(size=(T, H, Dn))
q_rope = rotate(rng.normal(size=(H, T, Dr)), range(S - T, S)).transpose(1, 0, 2)
k_rope = rotate(rng.normal(size=(S, Dr)), places)
inputs = (q_nope, q_rope, latent, k_rope, w_uk, w_uv)
expected = mla_expanded(*inputs, (Dn + Dr) ** -0.5, offset=S - T)
for name, scale in [
    (f"1/sqrt(Dn + Dr) = 1/sqrt({Dn + Dr})", (Dn + Dr) ** -0.5),
    (f"1/sqrt(Dn) = 1/sqrt({Dn})", Dn**-0.5),
    (f"1/sqrt(Dc + Dr) = 1/sqrt({Dc + Dr})", (Dc + Dr) ** -0.5),
]:
    error = largest_difference(mla_decode(*inputs, scale, offset=S - T), expected)
    print(f"absorbed, scale {name:<31} largest error {'below 1e-12' if error < 1e-12 else f'{error:.2f}'}")

# %% [markdown] lang="en"
# Equal within rounding, where the attempts above were far off or saved nothing. And the scale is that of the product
# that is meant: Dn + Dr numbers. Absorption makes the vectors longer, not the score.
#
# ## A model trained this way
#
# tiny-mla is the sibling of tiny-gqa: the same books, the same tokenizer, 4 layers of 8 heads, with latent attention.
# What does it hand to the cache? Compute layer 0's latent by hand from the weights, and compare. (DeepSeek divides the
# latent by its root mean square. That norm belongs to the latent, and it is done before anything is kept.) Then run the
# engine, with your function in the place of its own.

# %% [markdown] lang="zh" en="3de1c9c5"
# 两者在舍入误差内相等；前面那几种办法，要么差得很远，要么什么也没省下。另外，scale 要按原本的点积来定，也就是 Dn + Dr 个数。吸收让向量变长了，分数却还是那个分数。
#
# ## 这样训练出来的模型
#
# tiny-mla 和 tiny-gqa 是一对：同样的书，同样的分词器，同样是 4 层 8 个头，只是换成了潜在注意力。它往缓存里放的是什么？根据权重手算第 0 层的潜在向量，比一比。（DeepSeek 会把潜在向量除以它的均方根。这个归一化是潜在向量的一部分，存之前就做好了。）然后让引擎换上你写的函数跑一遍。

# %% tags=["claim-latent-by-hand", "claim-tiny-mla-size"]
from mini_engine.geometry import kv_elems_per_token

mla = load_model("tiny-mla", backend="numpy")
weights, handed = mla.model.weights, []


def look(layer, q, cached, up):
    """Write down what the model wants kept, then attend with the function of exercise 4.3."""
    handed.append((cached, up.w_uk, up.w_uv))
    latent, k_rope = cached[:, 0, :64], cached[:, 0, 64:]
    return mla_decode(q[..., :32], q[..., 32:], latent, k_rope, up.w_uk, up.w_uv, mla.model.softmax_scale)


def rms_norm(x, weight, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


tokens = tokenizer.encode("The young lady")
mla.model.forward(tokens, range(len(tokens)), look)
part = "model.layers.0.{}.weight".format
h = rms_norm(weights["model.embed_tokens.weight"][tokens], weights[part("input_layernorm")])
down = h @ weights[part("self_attn.kv_a_proj_with_mqa")].T  # W_DKV, and below it the rows of the shared rope key
c = rms_norm(down[:, :64], weights[part("self_attn.kv_a_layernorm")])
cached = handed[0][0]
print(f"handed to the cache of each layer: {cached.shape}, a latent of 64 and a rope key of 16 for each token")
print(f"the latent by hand is the same: {bool(largest_difference(c, cached[:, 0, :64]) < 1e-9)}")
print(f"scale: {mla.model.softmax_scale:.6f} = 1/sqrt(48)")
for name, loaded in (("tiny-gqa", tiny), ("tiny-mla", mla)):
    kept = kv_elems_per_token(loaded.spec) // loaded.spec.num_hidden_layers
    record = json.loads((loaded.path / "training.json").read_text())
    nats, steps = record["heldout_nats_per_token"], record["steps"]
    print(f"{name}: {kept:3} numbers per token and layer; held-out loss {nats:.2f} after {steps:,} steps")

# %% tags=["claim-mla-in-engine", "claim-latent-bytes"]
mine = LLM(mla, attention=mla_decode).generate([prompt], params, progress=False)[0].outputs[0]
engines = LLM(mla).generate([prompt], params, progress=False)[0].outputs[0]
print(f"{prompt}{mine.text}")
print(f"\nsame tokens as the engine: {mine.token_ids == engines.token_ids}")
in_torch = LLM("tiny-mla", backend="torch")
theirs = in_torch.generate([prompt], params, progress=False)[0].outputs[0]
print(f"same tokens as on PyTorch in float32: {theirs.token_ids == mine.token_ids}")
held = in_torch.engine.backend.kv_bytes_per_block // 16  # a block is 16 tokens
print(f"PyTorch holds {held:,} B a token: 4 layers x 80 numbers x 4 B = {4 * 80 * 4:,} B")

# %% [markdown] lang="en"
# Eight heads on 80 numbers, against 128 for two K/V heads. The loss is a little higher, after the same number of steps.
# That is no verdict on MLA, which was made for many heads and large models. It is what these two small ones reached.
#
# ## How hard a byte works
#
# In decode, the cache is read once per step. A byte that is read brings some FLOPs of work with it. As long as these
# are fewer than the GPU could do in the time of reading it, memory is the limit ([lesson
# 03](lessons/03_roofline.ipynb)). Sharing helps twice: fewer bytes, and more work for each. In MHA a byte serves one
# query head. With H / K heads on one, it serves H / K.
#
# In MLA all 128 heads of DeepSeek-V2 meet the same latent. How many FLOPs does a byte bring?

# %% [markdown] lang="zh" en="2fb65421"
# 八个头一共只存 80 个数，而 tiny-gqa 的两个 K/V 头要存 128 个。训练步数相同，损失略高一点。这不能用来评判 MLA，它本来就是为头多的大模型设计的；这只是这两个小模型各自达到的结果。
#
# ## 一个字节能带来多少计算
#
# 解码时，每一步把缓存读一遍。读进来的每个字节，都带来若干 FLOP 的计算。读一个字节的时间里，GPU 能做完的 FLOP 如果比这还多，瓶颈就是内存（[第 03 课](lessons/03_roofline.ipynb)）。共用有双重好处：字节更少，每个字节的计算更多。MHA 里一个字节只服务一个查询头；H / K 个头共用一个，它就服务 H / K 个。
#
# 在 MLA 里，DeepSeek-V2 的 128 个头读的是同一个潜在向量。那么一个字节带来多少 FLOP？

# %%
predict("04.intensity", value=None)

# %% tags=["claim-intensity"]
from mini_engine.roofline import attn_decode_intensity, mla_decode_intensity, ridge_point

heads, latent_size, rope_size = 128, 512, 64
flops = 2 * heads * ((latent_size + rope_size) + latent_size)  # a score, then a place in the sum
bytes_read = 2 * (latent_size + rope_size)
intensity = Fraction(flops, bytes_read)
assert intensity == mla_decode_intensity(heads, latent_size, rope_size)
print(f"one latent: {flops:,} FLOPs / {bytes_read:,} B = {intensity} = {float(intensity):.1f}")
for name, value in [
    ("the same with reading q and writing the result, context 4,096", mla_decode_intensity(128, 512, 64, S=4096)),
    ("two query tokens in a step, long context", mla_decode_intensity(128, 512, 64, s_q=2)),
]:
    print(f"{name}: {float(value):.1f}")
print("\nFLOPs that a machine could do in the time of reading a byte (data sheets):")
for name in ("apple-m1-pro", "a100-80gb-sxm", "h200-sxm", "h100-sxm"):
    machine = get_gpu(name)
    print(f"{machine.name:<14} {float(ridge_point(machine.bf16_flops, machine.memory_bandwidth)):6.1f}")

# %% [markdown] lang="en"
# Not 256. That is 2 · 128, and it would be right if each number served a score *and* a sum. The rope key's 64 serve the
# score only.
#
# Is that much? It depends on the machine. On an H100 it comes close to the ridge and stays below it: still bound by
# memory, just so, if you believe the data sheet. An H200 reads faster and computes no faster, so there the same step is
# bound by compute. So it is on an A100. And on the H100 two query tokens in a step are enough to cross the ridge: a
# model that guesses one token ahead and checks both at once (speculative decoding).
#
# Here are four ways to share, for the same 128 heads of 128. Move the sliders. Where does MLA lose to MQA?

# %% [markdown] lang="zh" en="97313209"
# 不是 256。256 是 2 · 128，前提是每个数既用来算分数，*又*参与加权求和。可是 rope 键的 64 个数只用来算分数。
#
# 这算多吗？要看机器。在 H100 上，它已经接近脊点，但还没到：如果相信规格表，它仍是访存受限，只差一点。H200 读得更快，算得却不更快，同样的一步在那里就是计算受限；A100 也是如此。而在 H100 上，只要一步里有两个查询 token，就越过了脊点，例如先猜一个 token、再一起验证的模型（投机解码）。
#
# 下面是四种共用方式，都是 128 个头，每个头的大小是 128。拖动滑块，看看 MLA 在什么时候输给 MQA。

# %% tags=["claim-panel"]
kv_choices = [1, 2, 4, 8, 16, 32, 64, 128]
panel(
    pictures.compare,
    query_heads={128: [8, 16, 32, 64, 128]},
    kv_heads={8: kv_choices},
    latent={512: [64, 128, 256, 512, 1024]},
    context={4096: [16, 256, 4096, 32768, 131072]},
)

# %% tags=["claim-table"]
print("128 heads of 128, one layer   numbers kept   FLOP/B at 4,096   long context   who reads what")
reads = {"MHA": "each head its own K and V", "GQA": "16 heads one K and V", "MQA": "all heads one K and V"}
row = "{:<23} {:18,} {:17.1f} {:14.1f}   {}".format
for name, K in (("MHA", 128), ("GQA", 8), ("MQA", 1)):
    at, limit = float(attn_decode_intensity(128, K, 128, 4096)), float(Fraction(128, K))
    print(row(f"{name}  2 x {K} x 128", 2 * K * 128, at, limit, reads[name]))
at, limit = (float(mla_decode_intensity(128, 512, 64, S)) for S in (4096, None))
print(row("MLA  512 + 64", 512 + 64, at, limit, "all heads one latent, one rope key"))

print("\nmodel             query heads  K/V heads   numbers kept   bytes per token   FLOP/B, long   as K/V heads")
for name in ("llama-2-7b", "falcon-7b", "llama-2-70b", "llama-3-70b", "deepseek-67b", "deepseek-v2-lite",
             "deepseek-v2", "deepseek-v3", "kimi-k2"):  # fmt: skip
    m = get_model(name)
    n = m.num_attention_heads
    if m.is_mla:
        kept, limit = m.latent_dim, mla_decode_intensity(n, m.kv_lora_rank, m.qk_rope_head_dim)
        shared, groups = "latent", Fraction(kept, 2 * m.qk_nope_head_dim)
    else:
        kept, limit = 2 * m.num_key_value_heads * m.head_dim, Fraction(n, m.num_key_value_heads)
        shared = groups = m.num_key_value_heads
    per_token = kv_elems_per_token(m) * 2
    print(f"{name:<17} {n:11} {shared:>10} {kept:14,} {per_token:17,}", end="")
    print(f" {float(limit):14.1f} {float(groups):14.2f}")

# %% [markdown] lang="en" tags=["claim-read-the-table"]
# Read three things in these tables.
#
# - Latent and rope key are 576 numbers together, as many as 9/4 = 2.25 K/V heads of GQA keep. (Last column: how many
#   K/V heads of the model's own size would keep as much.) The caption of table 1 in the DeepSeek-V2 paper says so too.
# - MLA is not the smallest: MQA keeps 256. With a rope key of 64, any latent over 192 keeps more than that, as the panel
#   shows. For this price, each head has matrices of its own, and sees the latent in its own way. In work per byte,
#   DeepSeek-V2's MLA is ahead of MQA.
# - The work per byte grows with the number of heads. DeepSeek-V2-Lite has 16 and comes to 30.2 FLOP/B. That is far below
#   the ridge of an H100 or A100, and just above the M1 Pro's.
#
# ### Two ratios that get mixed up
#
# "MLA is 3.6 times smaller than 8 groups" and "4.7 times smaller": both are around, and both are right. One compares a
# layer, the other two whole models.

# %% [markdown] lang="zh" en="2f28d17c"
# 从这两张表里可以读出三件事。
#
# - 潜在向量加上 rope 键一共 576 个数，相当于 9/4 = 2.25 个 GQA 的 K/V 头。（最后一列的意思是：按这个模型自己的头大小，多少个 K/V 头会占同样的空间。）DeepSeek-V2 论文表 1 的说明里也是这么写的。
# - MLA 并不是最小的，MQA 只存 256 个数。rope 键是 64 的话，潜在向量只要超过 192，存的就比 MQA 多，从图里也能看出来。换来的是：每个头都有自己的矩阵，从自己的角度去看潜在向量。论每个字节的计算量，DeepSeek-V2 的 MLA 领先于 MQA。
# - 每个字节的计算量随头数增长。DeepSeek-V2-Lite 有 16 个头，只有 30.2 FLOP/B，远低于 H100 和 A100 的脊点，仅略高于 M1 Pro。
#
# ### 两个常被混淆的比值
#
# 有人说“MLA 比 8 组的 GQA 小 3.6 倍”，也有人说“小 4.7 倍”，两种说法都对。前者比的是一层，后者比的是两个完整的模型。

# %% tags=["claim-two-ratios", "claim-three-baselines"]
from mini_engine.geometry import kv_bytes_per_token_per_gpu, mla_reduction

llama, v3 = get_model("llama-3-70b"), get_model("deepseek-v3")
layer = Fraction(2 * 8 * 128, 576)
print(f"per layer: 2,048 / 576 = {layer} = {float(layer):.3f}")
a, b = kv_elems_per_token(llama), kv_elems_per_token(v3)
print(f"per token: Llama-3-70B's {a:,} in 80 layers / DeepSeek-V3's {b:,} in 61 = {a / b:.2f}")
print("\nDeepSeek-V2 keeps less than                            by            times smaller")
for name, baseline in [
    ("MHA with its own 128 heads", "mha"),
    ("DeepSeek-67B, both in 16 bits", "deepseek-67b"),
    ("DeepSeek-67B in 16 bits, itself in 6", "deepseek-67b-6bit"),
]:
    saved = mla_reduction(baseline)
    print(f"{name:<46} {float(saved):10.2%} {float(1 / (1 - saved)):20.1f}")

# %% [markdown] lang="en" tags=["claim-published-figure"]
# ### 93.3%, of what?
#
# The DeepSeek-V2 paper says that its cache is 93.3% smaller than that of DeepSeek 67B. You often read it as "MLA saves
# 93.3%". The table shows what is in it.
#
# - DeepSeek 67B is no MHA. It has 8 K/V heads, and 95 layers against 60.
# - DeepSeek-V2 is served with a cache of 6 bits a number (section 3.2.3 of the paper), and the 67B with 16.
# - At equal precision MLA and fewer layers save 82.24% together. Against MHA of its own shape it is 98.24%.
#
# The paper does not take its figure apart. We did, and the last line meets it.
#
# ## What a latent cannot do
#
# Several GPUs share out a model's heads: tensor parallelism. Each GPU then keeps the K/V heads of its own query heads.
# With MLA?

# %% [markdown] lang="zh" en="53d31e8b"
# ### 93.3%，和谁比？
#
# DeepSeek-V2 论文说，它的缓存比 DeepSeek 67B 小 93.3%。流传开来就成了“MLA 省 93.3%”。上面的表把这个数拆开来看。
#
# - DeepSeek 67B 不是 MHA。它有 8 个 K/V 头，95 层，而 DeepSeek-V2 是 60 层。
# - DeepSeek-V2 部署时，缓存里每个数只用 6 位（论文 3.2.3 节），67B 则是 16 位。
# - 精度相同的话，MLA 和更少的层数一共省 82.24%。和自身形状的 MHA 相比，则是 98.24%。
#
# 论文没有拆开这个数。我们拆了，表的最后一行正好对上。
#
# ## 潜在向量做不到的事
#
# 几块 GPU 分担一个模型的头，这就是张量并行。每块 GPU 只存自己那些查询头要用的 K/V 头。换成 MLA 呢？

# %%
predict("04.per_gpu", value=None)

# %% tags=["claim-no-sharding"]
print("bytes of cache per token      on each GPU       together")
for m in (llama, v3):
    for tp in (1, 2, 4, 8):
        each = kv_bytes_per_token_per_gpu(m, tp)
        print(f"{m.name:<14} {tp} GPU{'s' if tp > 1 else ' '} {each:20,} {each * tp:14,}")

# %% [markdown] lang="en"
# Heads of GQA are dealt out until each GPU has one. The latent belongs to all heads, so each GPU keeps all of it: eight
# copies. That is why engines split attention with MLA by requests (data-parallel attention), or by tokens, and not by
# heads.
#
# ## Expand or absorb?
#
# Both forms give the same result. Absorbed, nothing is made of cached tokens, but each score is a product of Dc + Dr
# numbers in place of Dn + Dr. Expanded, scores are cheap, after all S latents have gone through W_UK and W_UV. Which
# takes fewer FLOPs?
#
# ## Exercise 4.4 - count both
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 6 lines
#
# Write `mla_flops(T, S, H, Dn, Dr, Dv, Dc, absorbed)`: FLOPs of one layer's latent attention for the last T of S
# tokens.
#
# - A multiply and an add are two FLOPs. Leave out softmax, mask and scale, and all projections but W_UK and W_UV.
# - Expanded: the cache holds latents, so all S tokens get a key (Dn numbers from Dc) and a value (Dv from Dc), in each
#   head.
# - Absorbed: each of the T queries is multiplied by W_UK, and each of the T sums by W_UV, in each head.
# - Then count pairs, a row and a token that it sees: the row at place S - T + t sees S - T + t + 1 tokens.
# - Each pair costs a score and a place in the weighted sum. Count the sizes of both forms yourself.
# - Return an exact int. A loop over rows is too slow: the check asks for a billion of them.
#
# Small case, all sizes 1: one token costs 10 expanded, 4 for key and value, 4 for the score, 2 for the sum. Absorbed,
# 10 as well.

# %% [markdown] lang="zh" en="eef61720"
# GQA 的 K/V 头可以一直分下去，直到每块 GPU 一个。潜在向量却属于所有头，所以每块 GPU 都要存一整份：一共八份。因此，对 MLA 的注意力，引擎按请求来分（数据并行注意力），或者按 token 来分，而不按头来分。
#
# ## 展开还是吸收？
#
# 两种形式结果相同。吸收：不为缓存的 token 生成任何东西，但每个分数要算 Dc + Dr 个数的点积，而不是 Dn + Dr 个。展开：分数很便宜，但先要让 S 个潜在向量全部过一遍 W_UK 和 W_UV。哪一种的 FLOP 更少？
#
# ## 练习 4.4 - 两种都算一算
#
# 难度 3/5 · 重要性 4/5 · 15 分钟 · 大约 6 行
#
# 写出 `mla_flops(T, S, H, Dn, Dr, Dv, Dc, absorbed)`：S 个 token 中的最后 T 个，做一层潜在注意力要多少 FLOP。
#
# - 一次乘加是两个 FLOP。softmax、掩码和 scale 不计；投影只计 W_UK 和 W_UV。
# - 展开：缓存里是潜在向量，所以 S 个 token 在每个头里都要算出键（由 Dc 得到 Dn 个数）和值（由 Dc 得到 Dv 个数）。
# - 吸收：在每个头里，T 个查询各乘一次 W_UK，T 个加权和各乘一次 W_UV。
# - 再数“对”：一行和它看得到的一个 token 算一对。位置为 S - T + t 的那一行，看得到 S - T + t + 1 个 token。
# - 每一对要算一个分数，还要在加权和里加一项。两种形式下各有多大，请你自己数。
# - 返回精确的 int。逐行循环太慢：检查里会有十亿行。
#
# 小例子，所有大小都是 1：一个 token，展开是 10，其中键和值 4，分数 4，求和 2。吸收也是 10。


# %% exercise="mla_flops"
def mla_flops(T, S, H, Dn, Dr, Dv, Dc, absorbed):
    """FLOPs of one layer's latent attention for the last T of S tokens."""
    ### BEGIN SOLUTION
    pairs = T * (S - T) + T * (T + 1) // 2
    if absorbed:
        return 2 * H * (T * Dc * (Dn + Dv) + pairs * (Dc + Dr + Dc))
    return 2 * H * (S * Dc * (Dn + Dv) + pairs * (Dn + Dr + Dv))
    ### END SOLUTION


# %% test="mla_flops" points=2
mla_flops = check("04.mla_flops", mla_flops)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Both forms have two parts: matrices that make something, and pairs that meet. Write both for T = 1 first.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Pairs: T rows see the S - T tokens before them, and 1 + 2 + ... + T of their own. Matrices: Dc times (Dn + Dv) per
# token and head, for S tokens expanded and T absorbed. A pair: Dn + Dr for the score and Dv for the sum. Absorbed, both
# are longer.
#
# </details>
# <details><summary>Hint 3: "one token, absorbed" fails</summary>
#
# After absorption the score's vectors have Dc + Dr numbers. The sum is over latents, so Dc. The rope key is not part of
# a value.
#
# </details>

# %% [markdown] lang="zh" en="3129fc99"
# <details><summary>提示 1：从哪里入手</summary>
#
# 两种形式都分两部分：用矩阵生成东西，以及成对的运算。先把 T = 1 的情形写出来。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先数有多少对：T 行都看得到前面的 S - T 个 token，自己这一段里再看到 1 + 2 + ... + T 个。矩阵：每个 token、每个头是 Dc 乘 (Dn + Dv)，展开时有 S 个 token，吸收时有 T 个。每一对：分数是 Dn + Dr，求和是 Dv。吸收时，这两个长度都更大。
#
# </details>
# <details><summary>提示 3：“one token, absorbed”这一项不通过</summary>
#
# 吸收之后，算分数的向量有 Dc + Dr 个数。求和是对潜在向量求的，所以是 Dc。rope 键不是值的一部分。
#
# </details>

# %% tags=["claim-expand-or-absorb"]
deepseek = (128, 128, 64, 128, 512)
print("DeepSeek-V2, one layer: FLOPs            expanded     absorbed   fewer")
for name, rows, tokens in [
    ("1 new token after 4,095", 1, 4096),
    ("64 new tokens after 4,096", 64, 4160),
    ("171 new tokens after 100,000", 171, 100_171),
    ("512 new tokens after 4,096", 512, 4608),
    ("a prompt of 4,096", 4096, 4096),
]:
    a, b = (mla_flops(rows, tokens, *deepseek, absorbed) for absorbed in (False, True))
    fewer = f"absorbed, {a / b:.2f} times" if b < a else f"expanded, {b / a:.2f} times"
    print(f"{name:<32} {a:16.3e} {b:12.3e}   {fewer}")
matrices, more_per_pair = 512 * (128 + 128), 2 * 512 + 64 - (128 + 64 + 128)
print(f"long contexts: equal at {matrices:,} / {more_per_pair} = {matrices / more_per_pair:.1f} new tokens")
for before in (128, 4096, 10**6):
    costs = ([mla_flops(rows, before + rows, *deepseek, form) for form in (False, True)] for rows in range(1, 400))
    border = next(rows for rows, (expanded, absorbed) in enumerate(costs, 1) if absorbed > expanded)
    print(f"after {before:9,} cached tokens, expanding takes fewer from {border} new tokens on")
read, made = 4096 * 576 * 2, 4096 * 128 * (128 + 64 + 128) * 2
print(f"4,096 tokens, one layer: latents {read:,} B, keys and values {made:,} B, {made / read:.0f} times as much")

new = np.unique(np.concatenate([np.arange(1, 400), np.logspace(0, 4, 100).astype(int)]))
flops = np.array([[float(mla_flops(T, 4096 + T, *deepseek, form)) for T in new.tolist()] for form in (False, True)])
picture(pictures.expand_or_absorb, tokens=new, expanded=flops[0], absorbed=flops[1], cached=4096)

# %% [markdown] lang="en"
# One new token: absorb, by two orders of magnitude. A whole prompt: expand, three times fewer FLOPs. For DeepSeek's sizes
# the border lies at 168 new tokens after 4,096 cached ones, as in the picture. After few cached tokens it comes earlier,
# and in long contexts it goes up to 171. Engines therefore use both forms in one model, expanded for prefill and absorbed
# for decode. They also expand long contexts piece by piece, because all keys and values at once would fill the memory.
#
# On your machine, with tiny-mla's weights and sizes, and random latents:

# %% [markdown] lang="zh" en="071dff95"
# 只有一个新 token：用吸收，FLOP 少两个数量级。一整段提示词：用展开，FLOP 只有吸收的三分之一。按 DeepSeek 的大小，缓存了 4,096 个 token 时，分界点是 168 个新 token，和图里一样。缓存的 token 少，分界点就更早；上下文很长时，它会升到 171。所以引擎在同一个模型里两种形式都用：预填充展开，解码吸收。上下文很长时，还要一段一段地展开，因为一下子放下所有的键和值会把显存占满。
#
# 在你的机器上，用 tiny-mla 的权重和大小，配上随机的潜在向量：

# %% tags=["nbval-ignore-output", "claim-measured-forms"]
from mini_engine.attention import mla_absorbed  # the engine's: the same as yours, by faster products

_, *trained = handed[0]  # w_uk and w_uv of layer 0
rng = np.random.default_rng(6)
latents, turned = rng.normal(size=(2000, 64)), rng.normal(size=(2000, 16))
print("tiny-mla, one layer, 2,000 tokens in all; expanded over absorbed:")
print("new tokens    expanded     absorbed   by clock   by FLOPs")
for T in (1, 16, 64, 512):
    q_nope, q_rope = rng.normal(size=(T, 8, 32)), rng.normal(size=(T, 8, 16))
    milliseconds = []
    for form in (mla_expanded, mla_absorbed):
        times = []
        for _ in range(4):
            start = time.perf_counter()
            form(q_nope, q_rope, latents, turned, *trained, 48**-0.5, 2000 - T)
            times.append(time.perf_counter() - start)
        milliseconds.append(min(times) * 1e3)
    by_clock = milliseconds[0] / milliseconds[1]
    counted = [mla_flops(T, 2000, 8, 32, 16, 32, 64, absorbed) for absorbed in (False, True)]
    print(f"{T:10} {milliseconds[0]:8.1f} ms {milliseconds[1]:9.1f} ms {by_clock:10.2f}", end="")
    print(f" {counted[0] / counted[1]:10.2f}")

# %% [markdown] lang="en" tags=["self-check"]
# The absorbed form's lead melts, as counted. But the clock's factors are not the count's. A count of FLOPs leaves out
# three things:
#
# - Keys and values that are made are also written to memory and read again. That costs the expanded form time, and no
#   FLOP.
# - Each call of NumPy has a price of its own. It weighs most on the shortest time, that of one token absorbed.
# - Mask and softmax are in both times and in neither count. With heads as small as tiny-mla's and many new tokens they
#   outweigh the products, and draw both times together.
#
# Which of them weighs most depends on your machine. So let the count tell you the direction, and a clock the factor.
#
# A decode step is more than attention, too. `benchmarks/mla_decode.py` measured whole steps on PyTorch, with one row
# and one thread. Expanded, a step took 4.4 times as long at 2,000 tokens, and 1.47 times at 128.
#
# ## Check yourself
#
# A short chunk: 16 new tokens, after 4,080 in the cache. How many times fewer FLOPs does the absorbed form take? Guess,
# then let `mla_flops` say it.

# %% [markdown] lang="zh" en="43602df1"
# 吸收的优势逐渐消失，和数出来的趋势一致。但实测的倍数和数出来的并不相同，因为只数 FLOP 会漏掉三样东西：
#
# - 生成的键和值要写进内存，再读出来。这让展开多花时间，却没有一个 FLOP。
# - 每次调用 NumPy 都有固定开销。总时间越短，它占的比重越大，最明显的就是只有一个 token、用吸收的时候。
# - 掩码和 softmax 两边都要花时间，两边都没有数进去。tiny-mla 的头这么小，新 token 一多，它们花的时间就超过矩阵乘，两边的时间也就被拉近了。
#
# 哪一样影响最大，取决于你的机器。所以方向看计数，倍数看实测。
#
# 一步解码也不只有注意力。`benchmarks/mla_decode.py` 在 PyTorch 上测了完整的一步，只有一行、一个线程。2,000 个 token 时，展开的一步耗时是吸收的 4.4 倍；128 个 token 时是 1.47 倍。
#
# ## 自测
#
# 一小段：缓存里有 4,080 个 token，再来 16 个新的。吸收的 FLOP 少多少倍？先猜，再让 `mla_flops` 来回答。

# %% tags=["self-check"]
predict("04.small_chunk", value=None)

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Read in the 2026 main branches of vLLM and SGLang, and in Transformers 5.24.0.
#
# | here | vLLM | SGLang | Transformers |
# |---|---|---|---|
# | `gqa_attention`, in place | the kernel takes `num_kv_heads` | the kernel takes `tp_k_head_num` | `repeat_kv` copies, in plain PyTorch attention ("eager") |
# | latent and rope key in one row | `MLAAttention`, `head_size = kv_lora_rank + qk_rope_head_dim`, one K/V head | `MLATokenToKVPool` | two tensors of the cache's layer |
# | expanded | `forward_mha` | `forward_normal` | always, in every step |
# | absorbed | `forward_mqa`, with `W_UK_T` and `W_UV` | `forward_absorb` | - |
# | no split by heads | data-parallel attention, or tokens dealt out to the GPUs ("decode context parallel") | `--enable-dp-attention` | - |
#
# Where it loses: absorbing a whole prompt takes three times the FLOPs. And a model with few heads gains little work per
# byte.
#
# > **What this does not show**
# >
# > - Quality. That MLA is as good as MHA is the DeepSeek-V2 paper's result. tiny-gqa and tiny-mla are too small to judge by.
# > - Times of a GPU. 241.8 is a count, and 295.2 comes from a data sheet.
# > - One text of 176 tokens measured the loss after sharing. Another text, or another model, can order the four rows otherwise.
# > - YaRN, which long-context DeepSeek models use, changes the scale by one more factor.
# > - Sparse attention, which later DeepSeek models add, keeps a further key that is not counted here.

# %% [markdown] lang="zh" en="42ce53a8"
# ## 在生产系统中
#
# 以下内容依据 2026 年 vLLM 和 SGLang main 分支以及 Transformers 5.24.0 的源码。
#
# | 这里 | vLLM | SGLang | Transformers |
# |---|---|---|---|
# | `gqa_attention`，原地读取 | kernel 接收 `num_kv_heads` | kernel 接收 `tp_k_head_num` | 用普通 PyTorch 算注意力（eager）时，`repeat_kv` 会复制 |
# | 潜在向量和 rope 键放在同一行 | `MLAAttention`，`head_size = kv_lora_rank + qk_rope_head_dim`，一个 K/V 头 | `MLATokenToKVPool` | 缓存层里的两个张量 |
# | 展开 | `forward_mha` | `forward_normal` | 每一步都是 |
# | 吸收 | `forward_mqa`，配合 `W_UK_T` 和 `W_UV` | `forward_absorb` | - |
# | 不按头切分 | 数据并行注意力，或者把 token 分给各块 GPU（decode context parallel） | `--enable-dp-attention` | - |
#
# 什么时候不划算：用吸收来处理整段提示词，FLOP 是三倍。头少的模型，每个字节的计算量也涨不了多少。
#
# > **这一课没有说明的事**
# >
# > - 质量。MLA 不逊于 MHA，这是 DeepSeek-V2 论文的结论。tiny-gqa 和 tiny-mla 太小，不足以判断。
# > - GPU 上的时间。241.8 是数出来的，295.2 来自规格表。
# > - 共用之后的损失，只用一段 176 个 token 的文本测过。换一段文本，或者换一个模型，四行的次序可能就变了。
# > - 长上下文的 DeepSeek 模型用的 YaRN，会给 scale 再乘一个系数。
# > - 后来的 DeepSeek 模型加入的稀疏注意力，还要多存一个键，这里没有算。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Why not cache the hidden state and make K and V from it?</summary>
#
# It would be exact. But in DeepSeek-V2 it has 5,120 numbers where the latent has 512, and each step would send all of
# them through the matrices. Absorption would work on it too, at ten times the latent's bytes.
#
# </details>
# <details><summary>Is MLA just MQA with a wide head?</summary>
#
# In decode, yes: one key of 576 numbers, whose first 512 are the value. What differs is W_UK and W_UV. Each head has
# its own, so heads see different keys made of the same latent.
#
# </details>
# <details><summary>So is decode with MLA compute bound or memory bound?</summary>
#
# It is near the border, and the answer depends on the GPU and on what you count. FlashMLA's authors take 2 · 128 = 256
# FLOPs per byte. They set it against a GPU that throttles to 865 TFLOP/s, which makes 258, and call it compute bound.
# With 241.8 and the 295.2 of an H100's data sheet it is memory bound. With the 206.0 of an H200's it is compute bound.
# Only a measurement on the GPU decides. [Lesson 11](lessons/11_triton_mla.ipynb) writes the kernel.
#
# </details>
# <details><summary>Why is the rope key shared by all heads?</summary>
#
# It costs Dr numbers once instead of H times. With a rope key for each head, DeepSeek-V2 would keep 127 · 64 = 8,128
# numbers more.
#
# </details>
# <details><summary>Can a program tell the size of MLA's cache from the number of K/V heads?</summary>
#
# No. The configuration of an MLA model gives as many K/V heads as query heads, for its expanded form. Calculators that
# use it report a cache many times too large. Add `kv_lora_rank` and `qk_rope_head_dim` instead.
#
# </details>
# <details><summary>Does the paper absorb W_UV into W_O, or not?</summary>
#
# It says that it can be. The product would take 3.6 times the weights of the two factors, so engines do not.
#
# </details>

# %% [markdown] lang="zh" en="e427f05c"
# ## 常见问题
#
# <details><summary>为什么不缓存隐藏状态，再由它算 K 和 V？</summary>
#
# 结果是精确的。但在 DeepSeek-V2 里，它有 5,120 个数，而潜在向量只有 512 个，而且每一步都要让它们全部过一遍矩阵。吸收对它同样成立，只是字节数是潜在向量的十倍。
#
# </details>
# <details><summary>MLA 是不是就是头特别宽的 MQA？</summary>
#
# 解码时，是的：一个 576 个数的键，其中前 512 个就是值。区别在于 W_UK 和 W_UV：每个头都有自己的一份，所以各个头从同一个潜在向量里看到的键各不相同。
#
# </details>
# <details><summary>那么 MLA 的解码到底是计算受限还是访存受限？</summary>
#
# 在边界附近，答案取决于用哪块 GPU，也取决于怎么数。FlashMLA 的作者取 2 · 128 = 256，单位是 FLOP 每字节。他们对照的是一块降频到 865 TFLOP/s 的 GPU，折合 258，于是说是计算受限。如果用 241.8，对照 H100 规格表上的 295.2，就是访存受限；对照 H200 的 206.0，又成了计算受限。只有在那块 GPU 上实测才能定论。[第 11 课](lessons/11_triton_mla.ipynb)会动手写出这个 kernel。
#
# </details>
# <details><summary>为什么 rope 键由所有头共用？</summary>
#
# 这样只花一份 Dr 个数，而不是 H 份。如果每个头都有自己的 rope 键，DeepSeek-V2 就要多存 127 · 64 = 8,128 个数。
#
# </details>
# <details><summary>程序能根据 K/V 头数算出 MLA 的缓存大小吗？</summary>
#
# 不能。MLA 模型的配置文件里，K/V 头数和查询头数一样多，那是给展开形式用的。照它来算的工具，会把缓存高估许多倍。应该把 `kv_lora_rank` 和 `qk_rope_head_dim` 相加。
#
# </details>
# <details><summary>论文到底有没有把 W_UV 吸收进 W_O？</summary>
#
# 论文说可以。但乘积的权重是两个因子的 3.6 倍，所以引擎不这么做。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - GQA is multi-head attention whose heads share K and V: fewer bytes, more work per byte, and training has to make up
#   for it.
# - MLA keeps one latent for all heads. Matrices move to the query and past the sum, so no key is made. Positions get a
#   key of their own.
# - Expand for many new tokens, absorb for few. The latent does not split by heads.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | GQA | 分组查询注意力 | "grouped heads" | H / K query heads read one K/V head |
# | MLA | 多头潜在注意力 | "compressed KV" | keys and values are made from one latent per token |
# | latent | 潜在向量 | "the compressed cache" | c, a learned summary of the hidden state, shared by all heads |
# | absorption | 矩阵吸收 | "merging the weights" | moving a matrix to the query, at run time |
# | decoupled RoPE | 解耦 RoPE | "the rope part" | a small key for the position alone |
#
# **Open exercises.** *Easy:* add your favourite model to the table of architectures. *Medium:* pool tiny-gqa's keys
# only, or its values only. Which hurts more? *Research:* take the K and V of tiny-gqa for many tokens and look at their
# singular values. How small a latent would hold them?
#
# **Back:** [03 · Roofline](lessons/03_roofline.ipynb) · **Next:** [05 · KV
# quantization](lessons/05_kv_quantization.ipynb)

# %% [markdown] lang="zh" en="c1a0423b"
# ## 三句话总结
#
# - GQA 就是各头共用 K 和 V 的多头注意力：字节更少，每个字节的计算更多，损失的质量要靠训练补回来。
# - MLA 只为所有头存一个潜在向量。矩阵挪到查询一侧、挪到求和之后，所以不用生成键。位置有一个单独的键。
# - 新 token 多就展开，少就吸收。潜在向量不能按头切分。
#
# | 术语 | 英文 | 常见说法 | 含义 |
# |---|---|---|---|
# | 分组查询注意力 | GQA | “分组的头” | 每 H / K 个查询头读同一个 K/V 头 |
# | 多头潜在注意力 | MLA | “压缩的 KV” | 键和值都由每个 token 的一个潜在向量生成 |
# | 潜在向量 | latent | “压缩后的缓存” | c，从隐藏状态学出来的摘要，所有头共用 |
# | 矩阵吸收 | absorption | “合并权重” | 运行时把矩阵挪到查询一侧 |
# | 解耦 RoPE | decoupled RoPE | “rope 那部分” | 一个只管位置的小键 |
#
# **开放练习。** *简单*：把你喜欢的模型加进架构对比表。
# *中等*：只合并 tiny-gqa 的键，或者只合并值，哪个损害更大？
# *研究*：取许多 token 在 tiny-gqa 里的 K 和 V，看看它们的奇异值。多小的潜在向量就能装下它们？
#
# **上一课：** [03 · 屋顶线](lessons/03_roofline.ipynb) · **下一课：**
# [05 · KV 量化](lessons/05_kv_quantization.ipynb)
