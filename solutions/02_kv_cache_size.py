# %% [markdown] lang="en" tags=["goals"]
# # 02 · How large is the cache?
#
# **Count bytes first. Every other capacity number is a division.**
#
# 60 to 90 minutes · no GPU · after lesson 01
#
# After this lesson you can
#
# - size the KV cache of a Llama-like model from its `config.json`, to the byte, and check it against a running engine;
# - size other models with one command;
# - say how many requests fit on a GPU, and which assumptions that number hides;
# - spot the slips in published numbers: mixed units, rounding up, heads that do not exist.

# %% [markdown] lang="zh" en="0d63e7cd"
# # 02 · 缓存有多大？
#
# **先数清有多少字节；其他容量数字，都只是再做一次除法。**
#
# 60 到 90 分钟 · 不需要 GPU · 先学第 01 课
#
# 学完这一课，你能够：
#
# - 根据 `config.json` 算出类 Llama 模型的 KV Cache 有多大，精确到字节，并和正在运行的引擎核对；
# - 用一条命令算出其他模型的 KV Cache 有多大；
# - 说清一块 GPU 容得下多少个请求，以及这个数字背后藏着哪些假设；
# - 看出公开数字里的毛病：单位混用、向上取整、把不存在的头也算进去。

# %%
import dataclasses
import io
import json
import tempfile
import textwrap
import time
from contextlib import redirect_stdout
from fractions import Fraction
from pathlib import Path

import torch

from mini_engine import LLM, ModelSpec, SamplingParams, get_gpu, get_model, list_models
from mini_engine.backends import TorchBackend
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.panels import p02_capacity
from mini_engine.course.panels import p02_kv_size as pictures
from mini_engine.models import load_model, random_model
from mini_engine.units import GB, GIB, KIB, MIB

# %% [markdown] lang="en"
# ## The pain
#
# You give the engine 1 MiB for its cache. Five hundred tokens run. Six hundred do not.

# %% [markdown] lang="zh" en="9834ea2f"
# ## 痛点
#
# 你给引擎 1 MiB 做缓存：500 个 token 能跑，600 个就不行。

# %%
llm = LLM("tiny-gqa", backend="torch", kv_cache_bytes=1 * MIB)
for n in (500, 600):
    try:
        answer = llm.generate([[5] * n], SamplingParams(max_tokens=8, ignore_eos=True), progress=False)[0]
        print(f"a prompt of {n} tokens: {len(answer.outputs[0].token_ids)} new tokens")
    except ValueError as error:
        print(f"a prompt of {n} tokens: refused")
        print(textwrap.indent(textwrap.fill(str(error), 76), "    "))

# %% [markdown] lang="en"
# Nothing is broken. A MiB of cache simply ends somewhere. The question is where, and you want the answer before you
# rent the machine.
#
# ## Count a real cache
#
# No formula yet. Open the running engine and look at what it has reserved. Its cache is two tensors, one for keys and
# one for values. Both are cut into **blocks** of 16 tokens. Block 0 is a dummy that no request gets
# (lesson 07). It comes on top of what you gave.

# %% [markdown] lang="zh" en="35d0cca5"
# 什么都没坏。缓存就这么大，总有用完的时候。问题是到哪里用完；这个答案，你最好在租机器之前就知道。
#
# ## 数一数真实的缓存
#
# 先不看公式。打开正在运行的引擎，看看它预留了什么。它的缓存是两个张量，一个放键，一个放值，都切成**块**（block），每块 16 个 token。块 0 是占位用的，不分给任何请求（第 07 课），也不占你给的预算。

# %% tags=["claim-count-bytes"]
backend = llm.engine.backend
print("                [layers, blocks, tokens, K/V heads, head size]")
for name, pool in backend.pools.items():
    print(f"{name:<14}  {list(pool.shape)!s:<24} {pool.dtype}   {pool.nbytes:,} B")
layers, blocks, tokens, heads, size = backend.pools["k"].shape
usable = sum(pool[:, 1:].nbytes for pool in backend.pools.values())  # without the dummy
per_token = usable // ((blocks - 1) * tokens)
print(f"all: {sum(pool.nbytes for pool in backend.pools.values()):,} B; ", end="")
print(f"usable: {usable:,} B for {blocks - 1} blocks of {tokens} tokens: {per_token:,} B a token")
print(f"{MIB:,} B // {per_token:,} B = {MIB // per_token} tokens, so 500 fit and 600 do not")

# %% [markdown] lang="en"
# ## Which numbers decide?
#
# A model has many sizes. Which of them does the cache know about? Ask the engine. Build a small model with random
# weights, double one number at a time, and count the bytes again.

# %% [markdown] lang="zh" en="2189b139"
# ## 由哪些数决定？
#
# 一个模型有很多尺寸参数，缓存到底和其中哪些有关？直接问引擎：用随机权重搭一个小模型，每次只把一个数翻倍，再数一遍字节。


# %% tags=["claim-terms"]
def count_bytes(spec, tokens=64, sequences=1, dtype=torch.float16):
    """What the engine's tensors take for these sequences, in blocks of 16 tokens."""
    backend = TorchBackend(random_model(spec, dtype=dtype))
    backend.init_kv(num_blocks=sequences * tokens // 16, block_size=16)
    return sum(pool[:, 1:].nbytes for pool in backend.pools.values())


small = ModelSpec(num_hidden_layers=2, hidden_size=64, num_attention_heads=8, num_key_value_heads=2, head_dim=16,
                  intermediate_size=96, vocab_size=128, max_position_embeddings=256)  # fmt: skip
rows = [
    ("L", "layers", {"num_hidden_layers": 4}, {}, "the model"),
    ("K", "K/V heads", {"num_key_value_heads": 4}, {}, "the model; shared out over GPUs"),
    ("D", "head size", {"head_dim": 32}, {}, "the model"),
    ("b", "bytes per number", {}, {"dtype": torch.float32}, "you, at the start: kv_cache_dtype"),
    ("S", "tokens per sequence", {}, {"tokens": 128}, "users"),
    ("B", "sequences", {}, {"sequences": 2}, "the scheduler, at every step"),
    ("", "query heads", {"num_attention_heads": 16}, {}, ""),
    ("", "hidden size", {"hidden_size": 128}, {}, ""),
    ("", "width of the MLP", {"intermediate_size": 192}, {}, ""),
    ("", "vocabulary", {"vocab_size": 256}, {}, ""),
]
base = count_bytes(small)
print(f"twice the ...             bytes change by   who can move it        (before: {base:,} B)")
for letter, name, model, run, who in rows:
    factor = Fraction(count_bytes(dataclasses.replace(small, **model), **run), base)
    print(f"{letter:>2}  {name:<22} {f'x {factor}' if factor != 1 else '-':>14}    {who}")

# %% [markdown] lang="en"
# Six numbers count, each to the first power. The others do not show at all. That is the formula, read off a machine:
#
# $$\text{bytes} = 2 \cdot L \cdot K \cdot D \cdot S \cdot B \cdot b$$
#
# The 2 in front is for keys and values. K is the number of K/V heads, as in lesson 01. In bf16, a float of 16 bits, b is
# 2 as well. So a 2 stands there twice, beside five other factors: L, K, D, S and B. People lose one of the two, or take
# the query heads for K.
#
# Three factors are frozen when the model is trained. One you choose when the engine starts. Two move all the time.

# %% [markdown] lang="zh" en="fe83ea29"
# 有六个数起作用，而且都是一次方；其余的毫无影响。这就是公式，是从机器上读出来的：
#
# $$\text{bytes} = 2 \cdot L \cdot K \cdot D \cdot S \cdot B \cdot b$$
#
# 最前面的 2 表示键和值各一份。K 是 K/V 头数，和第 01 课一样。bf16 是 16 位的浮点数，这时 b 也是 2。所以式子里有两个 2，此外还有五个因子：L、K、D、S 和 B。常见的错误是漏掉其中一个 2，或者把查询头数当成 K。
#
# 其中三个因子在训练模型时就定死了，一个在启动引擎时由你来选，还有两个一直在变。

# %% tags=["diagram"]
svg(*pictures.formula_card())

# %% [markdown] lang="en"
# ## Exercise 2.1 - from a config.json to bytes
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 3 lines
#
# Write `kv_bytes(config, tokens, batch=1, bytes_per_number=2)`. `config` is the `config.json` of a Llama-like model, as
# a dict.
#
# - `num_hidden_layers`, `num_attention_heads` and `hidden_size` are always there.
# - `num_key_value_heads` may be missing. Then every query head has its own K/V head.
# - `head_dim` may be missing. Then it is `hidden_size // num_attention_heads`. Where it is given, take it: the division
#   would be wrong for many models.
# - Missing can also mean that the file says `null`. In Python that is `None`.
# - Return an exact `int`.
#
# Small case: 1 layer, 4 query heads, hidden size 8, nothing else given. One token takes 2 · 1 · 4 · 2 numbers, which are
# 32 bytes.

# %% [markdown] lang="zh" en="50dd74a8"
# ## 练习 2.1 - 从 config.json 到字节数
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 3 行
#
# 写出 `kv_bytes(config, tokens, batch=1, bytes_per_number=2)`。`config` 是一个类 Llama 模型的 `config.json`，已读成 dict。
#
# - `num_hidden_layers`、`num_attention_heads` 和 `hidden_size` 一定有。
# - `num_key_value_heads` 可能没有。这时每个查询头都有自己的 K/V 头。
# - `head_dim` 可能没有。这时它等于 `hidden_size // num_attention_heads`。如果给了，就用给的值：对很多模型来说，除出来的结果是错的。
# - “没有”也可能是文件里写着 `null`，在 Python 里就是 `None`。
# - 返回精确的 `int`。
#
# 小例子：1 层，4 个查询头，隐藏维度为 8，其余都没给。一个 token 有 2 · 1 · 4 · 2 个数，占 32 字节。


# %% exercise="kv_bytes"
def kv_bytes(config, tokens, batch=1, bytes_per_number=2):
    """Bytes of K and V of `batch` sequences of `tokens` tokens each."""
    ### BEGIN SOLUTION
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_hidden_layers"] * heads * size * tokens * batch * bytes_per_number
    ### END SOLUTION


# %% test="kv_bytes" points=2
kv_bytes = check("02.kv_bytes", kv_bytes)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `config.get("head_dim")` gives `None` both for a missing key and for `null`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# First settle the number of K/V heads. Then settle the head size. Then multiply seven numbers.
#
# </details>
# <details><summary>Hint 3: "no head_dim" fails</summary>
#
# Divide by the query heads, with `//`. `/` makes a float, and rounding it later is not the same.
#
# </details>
#
# Does the engine agree? Reserve exactly what your function says for 320 tokens of tiny-gqa, in float32. One token more
# must be refused. Then compare your function with the package's table of models.

# %% [markdown] lang="zh" en="eef5021a"
# <details><summary>提示 1：从哪里入手</summary>
#
# 键不存在和值为 `null` 这两种情况，`config.get("head_dim")` 返回的都是 `None`。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先定下 K/V 头数，再定下头的大小，然后把七个数乘起来。
#
# </details>
# <details><summary>提示 3：“no head_dim”这一项不通过</summary>
#
# 除数是查询头数，而且要用 `//`。`/` 得到的是浮点数，到后面再取整就不是一回事了。
#
# </details>
#
# 引擎算出来的也一样吗？按你的函数给出的结果，为 tiny-gqa 预留恰好 320 个 token 的空间（float32）。再多一个 token 就必须被拒绝。然后拿你的函数和包里的模型表逐个对照。

# %% tags=["claim-engine-agrees"]
from mini_engine.geometry import kv_bytes_per_token, kv_total_bytes

tiny = load_model("tiny-gqa")
config = json.loads((tiny.path / "config.json").read_text())
reserved = kv_bytes(config, 320, 1, 4)
exact = LLM(tiny, backend="torch", kv_cache_bytes=reserved)
print(f"reserved {reserved:,} B")
for n in (320, 321):
    try:
        exact.generate([[5] * n], SamplingParams(max_tokens=1), progress=False)
        print(f"{n} tokens: run")
    except ValueError as error:
        print(f"{n} tokens: {str(error).split(':')[0]}")

fields = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim")
specs = [get_model(name) for name in list_models()]
plain = [s for s in specs if not s.is_mla and not s.layers_without_kv and not s.layer_kv_shapes]
agree = sum(kv_bytes({f: getattr(s, f) for f in fields}, 1) == kv_bytes_per_token(s) for s in plain)
wrong = [s.name for s in plain if s.head_dim != s.hidden_size // s.num_attention_heads]
print(f"your function agrees with the package on {agree} of {len(plain)} models")
print(f"head size from the division would be wrong for {len(wrong)}: {', '.join(wrong[:4])}, ...")

# %% [markdown] lang="en"
# ## Real models
#
# Now something that hurts. Llama-3-70B has 80 layers. Each has 64 query heads and 8 K/V heads, of size 128. Guess, for
# bf16. The third question is about two other models. Mixtral is a **mixture of experts**: each layer has several MLPs,
# the experts, and sends a token through two of them. Put your numbers in place of `None`.

# %% [markdown] lang="zh" en="2d3f06d2"
# ## 真实的模型
#
# 现在来看真正吃显存的模型。Llama-3-70B 有 80 层，每层有 64 个查询头和 8 个 K/V 头，大小都是 128。按 bf16 猜一猜。第三个问题换成另外两个模型，其中 Mixtral 是**混合专家模型**（MoE）：每层有好几个 MLP，称为专家，每个 token 只经过其中两个。把你的数写在 `None` 的位置上。

# %%
predict("02.per_token", value=None)
predict("02.batch_gb", value=None)
predict("02.experts", value=None)

# %% tags=["claim-llama-70b", "claim-opt-13b"]
llama = get_model("llama-3-70b")
mha = dataclasses.replace(llama, num_key_value_heads=64, name="the same with 64 K/V heads")
print("bf16                            L    K    D   B per token      MiB    one sequence of 2,048 tokens")
for s in (llama, mha, get_model("opt-13b"), get_model("llama-13b"), get_model("llama-3-8b")):
    one, sequence = kv_bytes_per_token(s), kv_total_bytes(s, 2048, 1)
    shape = f"{s.num_hidden_layers:4} {s.num_key_value_heads:4} {s.head_dim:4}"
    print(f"{s.name:<28} {shape} {one:13,} {one / MIB:8}    {sequence / GB:.3f} GB = {sequence / GIB:.4f} GiB")
print("one sequence, printed elsewhere: opt-13b 1.6 GB (the vLLM paper), llama-13b 1.7 GB (the vLLM blog)")
print()
print("16 sequences of 8,192 tokens")
for s in (llama, mha):
    total = kv_total_bytes(s, 8192, 16)
    print(
        f"{s.name:<28} {total:,} B = {total / GB:.1f} GB = {total / GIB:g} GiB; "
        f"a token: {kv_bytes_per_token(s) / KIB:,.0f} KiB"
    )

# %% [markdown] lang="en"
# The second row is the model that was not built. With as many K/V heads as query heads (**MHA**), each token would take
# 8 times as much. Sharing heads (**GQA**) is why long contexts can be served at all.
# [Lesson 04](lessons/04_gqa_and_mla.ipynb) looks inside.
#
# OPT-13B is the model of the vLLM paper, which says 800 KB a token and up to 1.6 GB a request. The vLLM blog says
# 1.7 GB, for LLaMA-13B. Same shape, same bytes, two units: 1.6 are GiB, called GB, and 1.7 are GB.
#
# ### GB is not GiB
#
# In bytes, a **GB** is 10 to the power of 9. A **GiB** is 2 to the power of 30, seven percent more. Data sheets count in
# GB. Powers of two come out round in GiB. Most wrong capacity numbers come from putting one where the other belongs.
#
# The "80 GB" on a box is a round name: an H100's driver reports more, nearly 80 GiB. Plans mostly take it as GB, and so
# does this course where it says nothing else.

# %% [markdown] lang="zh" en="7ee328ac"
# 第二行是一个假想的模型，没有人真的造过它。如果 K/V 头和查询头一样多（**MHA**），每个 token 要占 8 倍的空间。正因为共用 K/V 头（**GQA**），长上下文才用得起。其中的原理见[第 04 课](lessons/04_gqa_and_mla.ipynb)。
#
# OPT-13B 是 vLLM 论文里用的模型。论文说每个 token 占 800 KB，每个请求最多 1.6 GB。vLLM 的博客说的则是 LLaMA-13B，1.7 GB。形状相同，字节数也相同，只是单位不同：1.6 其实是 GiB，却写成了 GB；1.7 才是 GB。
#
# ### GB 不是 GiB
#
# 以字节计，一个 **GB** 是 10 的 9 次方，一个 **GiB** 是 2 的 30 次方，比前者多百分之七。规格书用 GB，而 2 的幂用 GiB 表示才整齐。容量算错，多半是这两个单位用混了。
#
# 包装上的“80 GB”只是个名义值：H100 的驱动报告的显存更多，接近 80 GiB。做规划时大多就按 GB 算，这门课没有另外说明时也是如此。

# %% tags=["claim-gb-gib"]
from mini_engine.geometry import weight_bytes

h100 = get_gpu("h100-sxm")
total = kv_total_bytes(llama, 4096, 32)
print(f"32 x 4,096 tokens: {kv_bytes_per_token(llama):,} x {32 * 4096:,} = {total:,} B")
print(f"  = {total / GIB:g} GiB = {total / GB:.2f} GB, and not '40 GB'")
for name, card in (("a card of 80 GB", h100.memory_bytes), ("what its driver reports", h100.reported_memory_bytes)):
    print(
        f"{name:<24} {card:>14,} B = {card / GB:.2f} GB = {card / GIB:.2f} GiB; the cache is {total / card:.1%} of it"
    )
print(f"the weights, at 2 bytes each: {weight_bytes(llama) / GB:.1f} GB. They do not fit on that card at all.")
print()
slip = 6_710_886_400
print("in print ('How to Scale Your Model', chapter on inference, 2025): ", end="")
print(f"{slip / GB:.1f} GiB for {slip:,} B, which is {slip / GIB:g} GiB = {slip / GB:.2f} GB")

# %% [markdown] lang="en"
# ## Exercise 2.2 - disprove a claim
#
# Difficulty 1/5 · importance 4/5 · 5 minutes · about 1 line
#
# Suppose a slide says: *"With 64 K/V heads, 16 sequences of 8K need 320 GiB. That far exceeds what the weights leave on
# a node of 8 x 80 GB."* Is that so? Weights come in bytes, cards in GB, the cache in GiB.
#
# Write `bytes_left(num_gpus, card_gb, weight_bytes, cache_gib)`.
#
# - The cards share one copy of the weights, and the cache is that of the whole node.
# - `card_gb` is an `int`, or a `Fraction` with a whole number of bytes, such as what a driver reports.
# - Return the bytes that are left on the whole node, exact to the byte: an `int`, or a whole `Fraction`. Negative means
#   that it does not fit.
#
# Small case: 1 card of 2 GB, no weights, a cache of 1 GiB. Then 2,000,000,000 - 1,073,741,824 is left.

# %% [markdown] lang="zh" en="4d64cdeb"
# ## 练习 2.2 - 推翻一个说法
#
# 难度 1/5 · 重要性 4/5 · 5 分钟 · 大约 1 行
#
# 假设有一页幻灯片写着：*“如果有 64 个 K/V 头，16 个 8K 的序列需要 320 GiB，远远超出 8 × 80 GB 的节点放完权重后剩下的空间。”* 真是这样吗？注意单位：权重用字节，卡用 GB，缓存用 GiB。
#
# 写出 `bytes_left(num_gpus, card_gb, weight_bytes, cache_gib)`。
#
# - 权重只有一份，分摊在所有卡上；缓存指整个节点的缓存。
# - `card_gb` 是 `int`，或者是 `Fraction`（例如驱动报告的显存），这时换算成字节也一定是整数。
# - 返回整个节点剩下的字节数，精确到一个字节：`int`，或者值为整数的 `Fraction`。负数表示放不下。
#
# 小例子：1 块 2 GB 的卡，没有权重，缓存 1 GiB。剩下 2,000,000,000 - 1,073,741,824。


# %% exercise="bytes_left"
def bytes_left(num_gpus, card_gb, weight_bytes, cache_gib):
    """Bytes left on the node; negative when weights and cache do not fit."""
    ### BEGIN SOLUTION
    return int(num_gpus * card_gb * 10**9) - weight_bytes - cache_gib * 2**30
    ### END SOLUTION


# %% test="bytes_left" points=1
bytes_left = check("02.bytes_left", bytes_left)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Bring all three to bytes first. Then it is one subtraction.
#
# </details>
# <details><summary>Hint 2: a property about GB or GiB fails</summary>
#
# `10**9` for what a data sheet says, `2**30` for GiB. Both are ints, and `1e9` is a float.
#
# </details>
# <details><summary>Hint 3: "exact to the byte" fails</summary>
#
# `int * Fraction` stays exact. `int()` comes too late for a float: that has rounded already.
#
# </details>

# %% [markdown] lang="zh" en="4ac05f7f"
# <details><summary>提示 1：从哪里入手</summary>
#
# 先把三者都换算成字节，剩下的就只是一次减法。
#
# </details>
# <details><summary>提示 2：和 GB 或 GiB 有关的某一项不通过</summary>
#
# 规格书上的数用 `10**9`，GiB 用 `2**30`。这两个都是 int，而 `1e9` 是浮点数。
#
# </details>
# <details><summary>提示 3：“exact to the byte”这一项不通过</summary>
#
# `int * Fraction` 仍然是精确的。对浮点数再用 `int()` 就晚了：它已经舍入过。
#
# </details>

# %% tags=["claim-320-gib"]
weights = weight_bytes(llama)  # bf16: 2 bytes for each of 70,553,706,496 parameters
reported = Fraction(h100.reported_memory_bytes, GB)
print("node             sequences   cache      left, without a cache     left, with it")
for cards, card, sequences in ((8, 80, 16), (8, reported, 16), (4, 80, 16), (8, 80, 32)):
    cache_gib = kv_total_bytes(mha, 8192, sequences) // GIB
    before, after = (bytes_left(cards, card, weights, gib) for gib in (0, cache_gib))
    node, verdict = f"{cards} x {float(card):.4g} GB", "fits" if after >= 0 else "does not fit"
    room = f"{float(before) / GB:7.1f} GB = {float(before) / GIB:6.1f} GiB"
    print(f"{node:<14} {sequences:10} {cache_gib:6} GiB   {room} {float(after) / GB:9.1f} GB   {verdict}")

# %% [markdown] lang="en"
# The claim is false: it fits on 8 cards. It is true for 4 cards, and for 32 sequences. A size without its node, batch
# and length says nothing, so always say all of them.
#
# ## Lengths times batches
#
# Bytes are linear in both. Here is Llama-3-70B as it is, with 8 K/V heads. The table asks: from how many sequences on
# does the cache weigh as much as the weights? The picture shows the sizes.

# %% [markdown] lang="zh" en="d3507d6b"
# 这个说法是错的：8 块卡放得下。换成 4 块卡，或者 32 个序列，它才成立。只报一个大小，不说节点、批大小和长度，等于什么也没说；所以每次都要说全。
#
# ## 长度乘以批大小
#
# 字节数和这两者都成正比。这里用的是真实的 Llama-3-70B，也就是 8 个 K/V 头。表格要回答的是：从多少个序列开始，缓存就和权重一样大？图中画的是缓存的大小。

# %% tags=["claim-grid", "claim-kv-against-weights"]
from mini_engine.geometry import kv_bytes_per_token_per_gpu
from mini_engine.roofline import batch_kv_equals_weights

print(
    f"weights of 70 billion parameters, rounded as most plans do: "
    f"140 GB = {140 * GB / GIB:.1f} GiB (exactly {weights / GB:.1f} GB)"
)
print("sequences from which the cache is at least as heavy, on each GPU")
print("GPUs   weights per GPU   B per token   of 8,192 tokens   of 32,768 tokens")
for tp in (1, 2, 8, 16):
    share, each = Fraction(140 * GB, tp), kv_bytes_per_token_per_gpu(llama, tp)
    batches = [batch_kv_equals_weights(share, each, context) for context in (8192, 32768)]
    print(f"{tp:4} {float(share / GB):14g} GB {each:13,} {batches[0]:17} {batches[1]:18}")
longest = kv_total_bytes(llama, 32768, 16)
print(f"32,768 x 16: {longest / GIB:g} GiB = {longest / GB:.1f} GB")
sizes = {"contexts": [2048, 4096, 8192, 32768], "batches": [1, 4, 16]}
picture(pictures.grid, bytes_per_token=kv_bytes_per_token(llama), weights=140 * GB, **sizes)

# %% [markdown] lang="en"
# Splitting over GPUs does not change the answer, as long as both are split. Beyond 8 GPUs the weights go on shrinking
# and the cache does not. Why, you will see in exercise 2.4.
#
# ### A bigger model, a bigger cache?
#
# You guessed above how much larger Mixtral-8x7B's cache is than Mistral-7B's. Here they are, with a few others.

# %% [markdown] lang="zh" en="cd3b0838"
# 只要权重和缓存都能切分，用几块 GPU 都不会改变答案。超过 8 块以后，每块上的权重还在继续变小，缓存却不再变小。原因见练习 2.4。
#
# ### 模型越大，缓存越大？
#
# 前面你猜过 Mixtral-8x7B 的缓存是 Mistral-7B 的几倍。下面就是这两个模型，再加上另外几个。

# %% tags=["claim-not-parameters"]
from mini_engine.geometry import params

print("model               parameters   L x K x D            B per token")
for name in ("mistral-7b-v0.1", "mixtral-8x7b", "llama-2-7b", "qwen3-32b", "qwen3-30b-a3b", "llama-3-70b"):
    s = get_model(name)
    shape = f"{s.num_hidden_layers} x {s.num_key_value_heads} x {s.head_dim}"
    print(f"{s.name:<18} {params(s) / 1e9:8.1f} 10^9   {shape:<14} {kv_bytes_per_token(s):17,}")

# %% [markdown] lang="en"
# Parameters are not in the formula. Experts sit in the MLP, which keeps nothing between tokens. And the model with the
# fewest parameters here has the largest cache. What counts is L, K and D.
#
# ## How many requests fit?
#
# Take a common plan: 70 billion parameters in bf16, two cards of 80 GB. Every number below is an assumption that
# somebody made for you.
#
# - `hbm` is the card's memory, and `util`, the **utilization**, the share of it that the engine may use.
# - **Overhead** is what else an engine needs: its runtime, and the **activations**, numbers on their way from layer to
#   layer. They peak in a large prefill.

# %% [markdown] lang="zh" en="9d0343e0"
# 公式里没有参数量。专家都在 MLP 里，而 MLP 不会为后面的 token 留下任何东西。表里参数最少的模型，缓存反而最大。真正起作用的是 L、K 和 D。
#
# ## 容得下多少个请求？
#
# 来看一个常见的方案：700 亿参数，bf16，两块 80 GB 的卡。下面的每个数，都是别人替你做的一个假设。
#
# - `hbm` 是卡上的显存；`util` 是**利用率**，即引擎最多可以用掉其中的多大比例。
# - **开销**（overhead）是引擎另外需要的部分：运行时环境，以及**激活值**，也就是在层与层之间传递的那些数。做一次大的预填充时，激活值会达到峰值。

# %% tags=["claim-budget"]
from mini_engine.geometry import kv_budget

print(kv_budget.explain(80 * GB, 140 * GB // 2, 2 * GB))
share = kv_bytes_per_token_per_gpu(llama, 2)
sequence = share * 8192
print(f"a token on each of 2 GPUs: {share:,} B; 8,192 tokens: {sequence / GIB:g} GiB = {sequence / GB:.2f} GB")
predict("02.eight_k", value=None)

# %% [markdown] lang="en"
# ## Exercise 2.3 - the units trap
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 1 line
#
# Suppose a slide answers this for four lengths: 25, 12, 6 and 1 requests. The next cell comes to the same numbers, so it
# has the same slip. Find it. Then write `concurrency(budget_gb, kv_bytes_per_token, context)` without it.
#
# - `budget_gb` is what one GPU has left, in GB: an `int` or a `Fraction`. `kv_bytes_per_token` is that GPU's share of a
#   token.
# - Return how many requests of `context` tokens fit, as an exact `int`. A request fits whole or not at all.
# - Be exact at the edge. If n requests fill the budget to the last byte, the answer is n.
#
# Small case: 3 GB are left, and `kv_bytes_per_token * context` is half a GB. Then 6 fit.

# %% [markdown] lang="zh" en="fbcd9ec5"
# ## 练习 2.3 - 单位陷阱
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 1 行
#
# 假设有一页幻灯片回答了这个问题：四种长度的请求，分别容得下 25、12、6 和 1 个。下一个单元格会得到同样的数，所以犯的也是同样的错。把错找出来，然后写一个没有这个错的 `concurrency(budget_gb, kv_bytes_per_token, context)`。
#
# - `budget_gb` 是一块 GPU 还剩多少，单位是 GB，类型是 `int` 或 `Fraction`。`kv_bytes_per_token` 是一个 token 在这块 GPU 上的那一份。
# - 返回能容下多少个长度为 `context` 个 token 的请求，要求是精确的 `int`。一个请求要么完整放下，要么就算放不下。
# - 边界上也要精确。如果 n 个请求正好把预算用到最后一个字节，答案就是 n。
#
# 小例子：剩 3 GB，`kv_bytes_per_token * context` 是半个 GB，那么能放 6 个。


# %%
def on_the_slide(budget_gb, kv_bytes_per_token, context):
    cache_gib = kv_bytes_per_token * context / 2**30
    return int(budget_gb / cache_gib)


print([on_the_slide(8, 163_840, context) for context in (2048, 4096, 8192, 32768)])


# %% exercise="concurrency"
def concurrency(budget_gb, kv_bytes_per_token, context):
    """Requests of `context` tokens that fit into `budget_gb` GB."""
    ### BEGIN SOLUTION
    return budget_gb * 10**9 // (kv_bytes_per_token * context)
    ### END SOLUTION


# %% test="concurrency" points=2
concurrency = check("02.concurrency", concurrency)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# What is the unit of the number above the division? What is the unit of the one below?
#
# </details>
# <details><summary>Hint 2: "exact at the edge" fails</summary>
#
# Round once, at the end, and down. A float has rounded before you can look. `Fraction * int` stays exact, and `//` of a
# `Fraction` and an int gives an int.
#
# </details>
#
# The slip divides GB by GiB: 8 GB are only 7.45 GiB. Is your count what a scheduler does? Give the engine a budget,
# send 30 requests of 64 tokens, and see how many run. Then see how far the answer moves with assumptions that texts
# leave out.

# %% [markdown] lang="zh" en="211a34b4"
# <details><summary>提示 1：从哪里入手</summary>
#
# 被除数是什么单位？除数又是什么单位？
#
# </details>
# <details><summary>提示 2：“exact at the edge”这一项不通过</summary>
#
# 只在最后取整一次，而且向下取。浮点数在你看到它之前就已经舍入了。`Fraction * int` 仍然是精确的，`Fraction` 和 int 做 `//` 得到的是 int。
#
# </details>
#
# 错就错在拿 GB 去除以 GiB：8 GB 只有 7.45 GiB。你算出的数，和调度器实际放行的一样多吗？给引擎一个预算，发去 30 个请求，每个 64 个 token，看看有多少个跑起来。再看看，那些没写明的假设会让答案变动多大。

# %% tags=["claim-units-trap", "claim-assumptions"]
contexts = (2048, 4096, 8192, 32768)
print(f"8 GB are {8 * GB / GIB:.2f} GiB. On the slide:", *[f"{on_the_slide(8, share, c):3}" for c in contexts])
print("                         right:", *[f"{concurrency(8, share, c):3}" for c in contexts])
print(f"before rounding down: {', '.join(f'{8 * GB / (share * c):.2f}' for c in contexts)}")
engine = LLM(tiny, backend="torch", kv_cache_bytes=2_000_000, enable_prefix_caching=False).engine
two_tokens = SamplingParams(max_tokens=2, ignore_eos=True)
for i in range(30):
    # 63 tokens and one that is generated: the 64th gets its K and V in the second step
    engine.add_request(f"request {i}", [60 * i + j for j in range(63)], two_tokens)
engine.step()
print(
    f"engine with 2,000,000 B: {engine.stats().num_running} requests run, "
    f"you say {concurrency(Fraction(2, 1000), 2048, 64)}"
)
print()
box, driver = h100.memory_bytes, h100.reported_memory_bytes
exactly = {version: params(get_model(f"llama-{version}-70b")) for version in (2, 3)}
print("a card has       util      parameters  overhead   2,048  4,096  8,192  32,768")
for card, used, count, overhead in (
    (box, "1", 70 * 10**9, 2),
    (box, "1", 70 * 10**9, 5),
    (box, "1", exactly[3], 2),
    (box, "1", exactly[2], 2),
    (driver, "1", 70 * 10**9, 2),
    (driver, "0.9", exactly[3], 2),
):
    left = kv_budget(card, count, overhead * GB, used)  # 2 bytes each, on 2 GPUs: a byte a parameter
    fit = "".join(f"{concurrency(Fraction(left, GB), share, c):7}" for c in contexts)
    print(f"{card:,} B {used:>4} {count:15,} {overhead:6} GB {fit}")

# %% [markdown] lang="en"
# At 8,192 tokens the same two cards hold 3 to 10 requests. The size of the card alone, box against driver, moves 5 to
# 10. No line of the table is wrong. A capacity number without its assumptions is.
#
# ## More GPUs
#
# **Tensor parallelism** cuts every layer into `tp` parts. Each GPU gets some of the heads, their weights, and their K
# and V. Of eight cards each holds an eighth of the weights, 17.5 GB, and has 2 GB of overhead. So 60.5 GB are left on
# each, and a token takes 40,960 bytes there. Guess how many requests of 8,192 tokens fit.

# %% [markdown] lang="zh" en="9c010cd4"
# 长度为 8,192 个 token 时，同样的两块卡能容下 3 到 10 个请求。单是显存按包装取还是按驱动取，就能让 5 变成 10。表里没有哪一行是错的；错的是不带假设的容量数字。
#
# ## 更多 GPU
#
# **张量并行**（tensor parallelism）把每一层切成 `tp` 份。每块 GPU 分到一部分头，连同它们的权重、K 和 V。用八块卡时，每块放八分之一的权重，即 17.5 GB，再加 2 GB 开销，于是每块还剩 60.5 GB；一个 token 在每块卡上占 40,960 字节。猜一猜，能容下多少个 8,192 个 token 的请求？

# %%
predict("02.tp8", value=None)

# %% [markdown] lang="en"
# ## Exercise 2.4 - the share of one GPU
#
# Difficulty 3/5 · importance 4/5 · 10 minutes · about 4 lines
#
# Write `kv_per_gpu(spec, tp, bytes_per_number=2)`: the bytes that one token takes on one of `tp` GPUs.
#
# - `spec` is a `ModelSpec`, with `num_hidden_layers`, `num_key_value_heads` and `head_dim`.
# - K/V heads are dealt out whole. If they do not divide evenly, the fullest GPU counts.
# - Each GPU needs at least one head. With more GPUs than K/V heads, heads are copied.
# - Some models keep a **latent** instead: one vector per token and layer that all heads read, without K and V apart.
#   For them `spec.is_mla` is true, `spec.latent_dim` is its length, and every GPU keeps all of it. Their
#   `num_key_value_heads` says nothing.
# - Return an exact `int`.
#
# Small case: 1 layer, 3 K/V heads of size 1. On 2 GPUs the fuller one has 2 heads, so 2 · 2 · 2 = 8 bytes.

# %% [markdown] lang="zh" en="d4f5203a"
# ## 练习 2.4 - 一块 GPU 上的那一份
#
# 难度 3/5 · 重要性 4/5 · 10 分钟 · 大约 4 行
#
# 写出 `kv_per_gpu(spec, tp, bytes_per_number=2)`：用 `tp` 块 GPU 时，一个 token 在其中一块上占多少字节。
#
# - `spec` 是 `ModelSpec`，有 `num_hidden_layers`、`num_key_value_heads` 和 `head_dim`。
# - K/V 头只能一个一个整着分。如果分不均匀，以分到最多的那块 GPU 为准。
# - 每块 GPU 至少要有一个头。GPU 比 K/V 头多时，头要复制。
# - 有些模型保存的是**潜在向量**（latent）：每层每个 token 一个向量，所有头都读它，不再区分 K 和 V。对这样的模型，`spec.is_mla` 为真，`spec.latent_dim` 是向量的长度，而且每块 GPU 都存一份完整的。它们的 `num_key_value_heads` 没有意义。
# - 返回精确的 `int`。
#
# 小例子：1 层，3 个大小为 1 的 K/V 头。用 2 块 GPU 时，分得多的那块有 2 个头，所以是 2 · 2 · 2 = 8 字节。


# %% exercise="kv_per_gpu"
def kv_per_gpu(spec, tp, bytes_per_number=2):
    """Bytes that one token takes on the fullest of `tp` GPUs."""
    ### BEGIN SOLUTION
    if spec.is_mla:
        return spec.num_hidden_layers * spec.latent_dim * bytes_per_number
    heads = -(-spec.num_key_value_heads // tp)  # rounded up, so at least 1
    return 2 * spec.num_hidden_layers * heads * spec.head_dim * bytes_per_number
    ### END SOLUTION


# %% test="kv_per_gpu" points=2
kv_per_gpu = check("02.kv_per_gpu", kv_per_gpu)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Take the latent first and return. For the others only the number of heads changes.
#
# </details>
# <details><summary>Hint 2: rounding up without floats</summary>
#
# `-(-a // b)` rounds up. So does `(a + b - 1) // b`.
#
# </details>

# %% [markdown] lang="zh" en="c5349e05"
# <details><summary>提示 1：从哪里入手</summary>
#
# 先处理潜在向量，直接返回。对其余的模型，变的只是头数。
#
# </details>
# <details><summary>提示 2：不用浮点数向上取整</summary>
#
# `-(-a // b)` 就是向上取整，`(a + b - 1) // b` 也是。
#
# </details>

# %% tags=["claim-tp", "claim-tp-mla"]
deepseek = get_model("deepseek-v3")
print("B per token on one GPU, bf16      tp = 1        2        4        8       16    all 16 together")
for s in (llama, deepseek):
    row = "".join(f"{kv_per_gpu(s, tp):9,}" for tp in (1, 2, 4, 8, 16))
    print(f"{s.name:<30} {row} {16 * kv_per_gpu(s, 16):18,}")
print(
    f"8 GPUs keep {8 * kv_per_gpu(deepseek, 8):,} B for each token of {deepseek.name}, "
    f"and {8 * kv_per_gpu(llama, 8):,} B of {llama.name}"
)
print()
print("Counted in an engine that gets the heads of one GPU. It runs on one GPU, so we deal them out for it:")
for tp, held in ((1, 2), (2, 1), (4, 1)):  # tiny-gqa has 2 K/V heads
    one = dataclasses.replace(tiny.spec, num_key_value_heads=held)
    counted, said = count_bytes(one, 16, 1, torch.float32) // 16, kv_per_gpu(tiny.spec, tp, 4)
    print(f"tiny-gqa, float32, tp = {tp}, K/V heads: {held}   {counted:,} B, you say {said:,} B")
little = ModelSpec(architecture="DeepseekV2ForCausalLM", num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
                   num_key_value_heads=4, head_dim=24, intermediate_size=96, vocab_size=128, max_position_embeddings=256,
                   kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16)  # fmt: skip
print(
    f"a small latent, float16, any tp        {count_bytes(little, 16) // 16:7,} B, you say {kv_per_gpu(little, 8):,} B"
)
print()
for tp, left in ((2, Fraction(8)), (8, Fraction(121, 2))):
    print(
        f"{tp} GPUs, {float(left):g} GB left on each: "
        f"{concurrency(left, kv_per_gpu(llama, tp), 8192)} requests of 8,192 tokens"
    )
split, more = Fraction(kv_per_gpu(llama, 2), kv_per_gpu(llama, 8)), Fraction(121, 2) / 8
print(
    f"the room grows {split} x {float(more)} = {float(split * more)} times before rounding down, "
    f"from 5 to 180 is {180 // 5} times"
)

# %% [markdown] lang="en"
# Four times the cards give 30.25 times the room. Factor 4 is the split: on each card a token takes a quarter. The other
# factor is what is left on each, 60.5 GB in place of 8. The weights are there only once, so nearly all that you add is
# left for the cache.
#
# A latent is small, but it is on every card in full. That is why such models are often served with **data-parallel
# attention**: each card keeps whole requests of its own.
#
# ## The levers, in a row
#
# Start from the model that was not built and pull one lever after the other. Each factor is against the bar before it.

# %% [markdown] lang="zh" en="c35061b9"
# 卡变成原来的四倍，空间却变成原来的 30.25 倍。其中四倍来自切分：一个 token 在每块卡上只占四分之一。另一个因子来自每块卡剩下的空间：从 8 变成了 60.5 GB。权重总共只有一份，所以新加的显存几乎全都留给了缓存。
#
# 潜在向量虽然小，但每块卡上都有完整的一份。所以部署这类模型时，常常采用**数据并行注意力**：每个请求完整地留在一块卡上，每块卡只管自己的那些请求。
#
# ## 各种手段，逐一叠加
#
# 从前面那个假想的模型出发，把手段一样一样地加上去。每个倍数都是和前一根柱子相比。

# %% tags=["claim-levers"]
S, prefix = 8192, 2000
small_node, large_node = 8 * GB, 121 * GB // 2  # left on each of 2 and of 8 GPUs
steps = [
    ("64 K/V heads\n(MHA)", small_node / (kv_per_gpu(mha, 2) * S)),
    ("8 K/V heads\n(GQA)", small_node / (kv_per_gpu(llama, 2) * S)),
    ("K/V in fp8", small_node / (kv_per_gpu(llama, 2, 1) * S)),
    ("8 GPUs\nin place of 2", large_node / (kv_per_gpu(llama, 8, 1) * S)),
    ("2,000 tokens\nshared", (large_node / kv_per_gpu(llama, 8, 1) - prefix) / (S - prefix)),
]
latent = dataclasses.replace(deepseek, num_hidden_layers=80)  # its latent, in as many layers as Llama has
print("each lever alone, from GQA on 2 GPUs in bf16, and a latent in its place; requests of 8,192 tokens")
for name, s, tp, width in (
    ("as it is", llama, 2, 2),
    ("K/V in fp8", llama, 2, 1),
    ("8 GPUs", llama, 8, 2),
    ("a latent of 576 numbers in each of 80 layers", latent, 2, 2),
    ("the same latent on 8 GPUs", latent, 8, 2),
):
    budget = Fraction(small_node if tp == 2 else large_node, GB)
    print(
        f"{name:<46} {kv_per_gpu(s, tp, width):9,} B a token and GPU "
        f"{concurrency(budget, kv_per_gpu(s, tp, width), S):5}"
    )
formats = {"float32": "auto", "fp8": "fp8", "int8 with its scales": "int8"}
held = {n: LLM(tiny, backend="torch", num_blocks=1, kv_cache_dtype=d).engine.backend for n, d in formats.items()}
counted = {name: b.kv_bytes_per_block // 16 for name, b in held.items()}
counted["bf16"] = count_bytes(tiny.spec, 16, 1, torch.bfloat16) // 16
print(
    "counted, tiny-gqa:",
    ", ".join(f"{name} {counted[name]:,} B" for name in sorted(counted, key=counted.get, reverse=True)),
    "a token",
)
picture(pictures.levers, steps=steps, context=S)

# %% [markdown] lang="en"
# - **fp8**, one byte a number in place of bf16's two, doubles the room for a flag and some accuracy. How much accuracy,
#   only a test on your task can tell ([lesson 05](lessons/05_kv_quantization.ipynb)).
# - **More GPUs** give the largest factor here, x 30.25, and cost most.
# - **Architecture** comes next, x 8 for GQA, but it is pulled years before you come. On 2 GPUs the latent beats GQA. On
#   8 it loses: GQA is split and the latent is not. The order of levers depends on the machine.
# - **A prefix cache** keeps what many prompts begin with, such as a system prompt, once for all of them. It gives
#   nothing when no two begin alike. It is called free, and has a price in both cases.
#
# Its price: every full block of every prompt is hashed, on the CPU, hit or miss. On your machine:

# %% [markdown] lang="zh" en="c99acdf9"
# - **fp8**：一个数占一个字节，而 bf16 占两个，所以空间翻倍。代价是一个启动参数和一点精度；到底损失多少精度，只有在你自己的任务上测过才知道（[第 05 课](lessons/05_kv_quantization.ipynb)）。
# - **更多 GPU**：在这里倍数最大（x 30.25），也最贵。
# - **模型结构**：倍数居第二，GQA 就有 x 8，只是这一步早在你接手的几年前就定下了。2 块 GPU 时，潜在向量胜过 GQA；8 块时却输了，因为 GQA 能切分，潜在向量不能。哪种手段更有效，取决于机器。
# - **前缀缓存**：许多提示词共同的开头（例如系统提示词）只存一份，大家共用。如果没有两个提示词开头相同，它就毫无用处。常有人说它是免费的，其实不管用不用得上，都要付出代价。
#
# 代价是：每个提示词里每个填满的块，都要在 CPU 上算一次哈希。在你的机器上：

# %% tags=["nbval-ignore-output", "claim-hashing-costs"]
from mini_engine.cache.hashing import BlockHasher

hasher, prompt = BlockHasher(model="llama-3-70b"), [(7919 * i) % 128_256 for i in range(8192)]
times = []
for _ in range(5):
    start, parent = time.perf_counter(), None
    for i in range(0, len(prompt), 16):
        parent = hasher.hash_block(parent, prompt[i : i + 16])
    times.append(time.perf_counter() - start)
print(
    f"{len(prompt) // 16} blocks of 16 tokens: {min(times) * 1e3:.2f} ms a prompt, "
    f"{min(times) / 512 * 1e6:.2f} us a block"
)
print(f"at 100 such prompts a second: {100 * min(times):.1%} of one CPU core")
pool = small_node // (16 * kv_per_gpu(llama, 2))
print(
    f"and room: a kept prefix of 2,000 tokens holds {2000 // 16} of the {pool:,} blocks "
    f"of the 2-GPU node while it is kept"
)

# %% [markdown] lang="en"
# That is little against a prefill, and not nothing. The larger price is the last line. Kept blocks compete with running
# requests, so someone has to decide which to drop. [Lesson 09](lessons/09_prefix_caching.ipynb) builds that.
#
# ## What vLLM prints
#
# When vLLM starts, it logs a line like `Maximum concurrency for 8,192 tokens per request: 4.61x`. People ask what it
# means ([vllm #8031](https://github.com/vllm-project/vllm/issues/8031)). Now you can compute it: tokens in the pool,
# divided by the longest request allowed.

# %% [markdown] lang="zh" en="9c592b82"
# 和一次预填充比，这点时间不算什么，但也不是零。更大的代价在最后一行：保留下来的块会和正在运行的请求抢空间，所以总得有什么来决定丢掉哪些。这件事留给[第 09 课](lessons/09_prefix_caching.ipynb)。
#
# ## vLLM 打印的是什么
#
# vLLM 启动时会打印类似 `Maximum concurrency for 8,192 tokens per request: 4.61x` 的一行日志。常有人问这是什么意思（[vllm #8031](https://github.com/vllm-project/vllm/issues/8031)）。现在你自己就能算：缓存池能放的 token 数，除以允许的最长请求长度。

# %% tags=["claim-vllm-line"]
from mini_engine.geometry import concurrency_ratio

for where, blocks, longest in (("vllm pull request 12569", 1381, 2048), ("vllm issue 10517", 1952, 20_000)):
    ratio = concurrency_ratio(blocks, 16, longest)
    print(f"{where}: {blocks:,} blocks of 16 = {16 * blocks:,} tokens; / {longest:,} = {float(ratio):.2f}x")
ratio = Fraction(461, 100)
print(
    f"4.61x for 8,192 tokens: {int(ratio * 8192):,} tokens in all, "
    f"so {int(ratio)} requests of 8,192, or {int(ratio * 8192 / 800)} of 800"
)
print()
print(concurrency_ratio.explain(1952, 16, 20_000))

# %% [markdown] lang="en"
# It is not a limit on requests. It is the pool, measured in requests of the greatest length. Shorter ones fit in greater
# number: 31,232 tokens hold 1 request of 20,000 tokens, and 3 of 10,000.
#
# ## The capacity panel
#
# Everything so far, in one place, with the arithmetic. Find a case where the batch does not fit. Then find one where
# the K/V takes longer to read than the weights.
#
# The field *model* takes a name from the table, or the path of any `config.json` on your disk. *params* is for models
# whose weights cannot be counted from the file: write `80e9`. [Lesson 03](lessons/03_roofline.ipynb) explains the lower bar.

# %% [markdown] lang="zh" en="493d251a"
# 它不是请求数的上限，而是拿最长的请求当尺子，量出缓存池有多大。请求短一些，就能多放几个：31,232 个 token 的池子只放得下 1 个 20,000 个 token 的请求，10,000 个 token 的却能放 3 个。
#
# ## 容量面板
#
# 前面的内容全都集中在这里，算式也列了出来。先找一个整批放不下的例子，再找一个读 K/V 比读权重还久的例子。
#
# *model* 一栏可以填表里的名字，也可以填你磁盘上任意一个 `config.json` 的路径。有些模型的权重没法根据文件数出来，才要填 *params*：写成 `80e9` 这样。下方那根横条的含义，见[第 03 课](lessons/03_roofline.ipynb)。

# %% tags=["claim-panel"]
panel(p02_capacity.capacity, height=2.9, **p02_capacity.controls("llama-3-70b"))

# %% [markdown] lang="en"
# ### Your own model
#
# Here is a model that is in no table. Panel and command must say the same, as both ask the same calculators. Write the
# path of your own file in the panel, or run this in a terminal:
#
# ```
# mini-engine size --model path/to/config.json --gpu h100-sxm --context 8192 --batch 32
# ```
#
# Not every file is Llama-like. Look for three kinds of fields:
#
# - `kv_lora_rank` means a latent. `latent_dim` is `kv_lora_rank + qk_rope_head_dim`, in place of 2 · K · D.
# - `sliding_window` means layers that keep only their last tokens. There, S is at most the window.
# - `layer_types`, or a pattern, tells which layers those are, and which keep no K/V at all.
#
# `ModelSpec.from_hf_config` reads them all, and makes the `spec` that your `kv_per_gpu` takes.
#
# With `--why` the command answers twelve questions as well, or one of them: choose it in the second cell below. Those
# about speed mean more after lesson 03, those about prefixes after [lesson 09](lessons/09_prefix_caching.ipynb). The command counts parameters
# exactly, not as 70 billion, so it finds 179 requests where you found 180.

# %% [markdown] lang="zh" en="f10dedf7"
# ### 你自己的模型
#
# 下面这个模型，哪张表里都没有。面板和命令给出的结果必须一致，因为用的是同一套计算函数。把你自己的文件路径填进面板，或者在终端里运行：
#
# ```
# mini-engine size --model path/to/config.json --gpu h100-sxm --context 8192 --batch 32
# ```
#
# 并非每个文件描述的都是类 Llama 模型。留意三种字段：
#
# - `kv_lora_rank`：有它就说明用的是潜在向量。`latent_dim` 等于 `kv_lora_rank + qk_rope_head_dim`，用它代替 2 · K · D。
# - `sliding_window`：有些层只保留最近的若干个 token。对这些层，S 不会超过窗口的大小。
# - `layer_types`，或者类似的层模式字段：说明带窗口的是哪些层，以及哪些层根本不存 K/V。
#
# `ModelSpec.from_hf_config` 会读取所有这些字段，得到的正是你的 `kv_per_gpu` 所需的 `spec`。
#
# 加上 `--why`，命令还会回答十二个问题，也可以只答其中一个：在下面第二个单元格里选。关于速度的几个，学完第 03 课更容易懂；关于前缀的，要等[第 09 课](lessons/09_prefix_caching.ipynb)。命令用的是精确的参数量，不是 700 亿，所以你算出 180 个请求的地方，它给出的是 179 个。

# %% tags=["claim-any-config"]
from mini_engine.cli import main
from mini_engine.geometry import kv_bytes_hybrid

mine = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 36, "hidden_size": 2560,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(mine))
    spec = ModelSpec.from_hf_config(path)
    shown = picture(p02_capacity.capacity, height=2.9, model=str(path), gpu="h100-sxm", tp=1, context=8192, batch=32)
    with redirect_stdout(io.StringIO()) as printed:
        main(["size", "--model", str(path), "--gpu", "h100-sxm", "--context", "8192", "--batch", "32", "--json"])
command = json.loads(printed.getvalue())
room, names = command["max_concurrency"], ("kv_bytes_per_token", "max_concurrency", "kv_budget_bytes")
print(f"you:     {kv_bytes(mine, 1):,} B a token; {kv_per_gpu(spec, 8):,} B on each of 8 GPUs")
print(f"command: {command['kv_bytes_per_token']:,} B a token, room for {room} sequences of 8,192 tokens")
print(f"panel:   the same numbers: {all(f'{command[name]:,}' in shown.text for name in names)}")
gemma, n = get_model("gemma-3-27b"), 32_768
print()
print(f"{deepseek.name}: {deepseek.kv_lora_rank} + {deepseek.qk_rope_head_dim} = {deepseek.latent_dim}", end=" ")
print(f"numbers a token in each of {deepseek.num_hidden_layers} layers")
window = max(w or 0 for w in gemma.layer_windows)
print(f"{gemma.name}: {gemma.num_windowed_layers} of {gemma.num_hidden_layers} layers keep {window:,} tokens.", end=" ")
print(f"At {n:,} tokens a request takes", end=" ")
print(f"{kv_bytes_hybrid(gemma, gemma.layer_windows, n) / GB:.2f} GB, not {kv_total_bytes(gemma, n, 1) / GB:.2f} GB")
print()
print(shown.text)
shown

# %% tags=["claim-twelve-questions"]
from mini_engine.sizing.why import QUESTIONS

ask = 6  # put another number from 1 to 12, and run the cell again
print("\n".join(f"{number:2}. {question}" for number, question in enumerate(QUESTIONS, 1)))
with redirect_stdout(io.StringIO()) as printed:
    main(["size", "--model", "llama-3-70b", "--tp", "2", "--context", "8192", "--batch", "5", "--why", str(ask)])
print("\n> mini-engine size --model llama-3-70b --tp 2 --context 8192 --batch 5 --why", ask)
print(printed.getvalue()[printed.getvalue().index(f"\n{ask}. ") + 1 :])

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# From 2,048 to 32,768 tokens your table went from 23 requests to 1. By which factor does the room really shrink?

# %% [markdown] lang="zh" en="d68064f8"
# ## 自测
#
# 从 2,048 到 32,768 个 token，你的表里从 23 个请求变成了 1 个。如果不取整，能容下的请求其实减少到了原来的几分之一？填分母就行。

# %% tags=["self-check"]
predict("02.sixteen", value=None)

# %% [markdown] lang="en" tags=["in-production"]
# ## In production
#
# Read in the 2026 sources of vLLM (main branch) and SGLang.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | bytes of a token or block | `page_size_bytes` of a `FullAttentionSpec`, or `MLAAttentionSpec` for a latent | `get_cell_size_per_token` |
# | share of the card to use | `gpu_memory_utilization` | `mem_fraction_static` |
# | overhead | measured at start by a trial run, activations included | what that fraction leaves |
# | number format of K/V | `kv_cache_dtype` | `kv_cache_dtype` |
# | tokens or blocks in the pool | `num_gpu_blocks` | `max_total_num_tokens` |
# | requests that fit | the "Maximum concurrency" line | `max_running_requests`, an upper limit |
#
# Where the formula loses: the trial run's activation peak comes out of the same memory. It moves with settings that
# seem to have nothing to do with the cache. A user found that 29,000 tokens failed where 20,000 and 35,000 started
# ([vllm #10517](https://github.com/vllm-project/vllm/issues/10517)).

# %% [markdown] lang="zh" en="de373a3f"
# ## 在生产系统中
#
# 以下内容依据 2026 年 vLLM main 分支和 SGLang 的源码。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | 一个 token 或一个块的字节数 | `FullAttentionSpec` 的 `page_size_bytes`；潜在向量用 `MLAAttentionSpec` | `get_cell_size_per_token` |
# | 可用显存的比例 | `gpu_memory_utilization` | `mem_fraction_static` |
# | 开销 | 启动时试跑一次测出，含激活值 | 上述比例之外剩下的部分 |
# | K/V 的数值格式 | `kv_cache_dtype` | `kv_cache_dtype` |
# | 缓存池里的 token 数或块数 | `num_gpu_blocks` | `max_total_num_tokens` |
# | 能容下的请求数 | “Maximum concurrency”那一行 | `max_running_requests`，只是上限 |
#
# 公式失灵的地方：试跑时激活值的峰值也占用同一份显存，而会影响这个峰值的设置，看上去和缓存毫不相干。有用户发现，29,000 个 token 启动失败，20,000 和 35,000 个却都能启动（[vllm #10517](https://github.com/vllm-project/vllm/issues/10517)）。

# %% [markdown] lang="en" tags=["limits", "question"]
# > **What this does not show**
# >
# > - The formula counts each attention layer in full, also one with a window. The panel and the command show both.
# > - Quantised caches may keep scales too, as int8 does above. Then half is a little more than half ([lesson 05](lessons/05_kv_quantization.ipynb)).
# > - A pool of blocks wastes part of each last block. Reserved but unused room is another story ([lesson 06](lessons/06_fragmentation.ipynb)).
# > - Requests grow. Five requests of 8,192 tokens fit, and far more fit at first. What happens when they have grown is for the scheduler ([lesson 14](lessons/14_preemption.ipynb)).
# > - The step times in the panel take memory and arithmetic at the full speed of the data sheet. Real steps take longer.
#
# ## Questions that people ask
#
# <details><summary>Is the prompt cheaper to keep than the answer?</summary>
#
# No. A token is a token. The formula does not know who wrote it.
#
# </details>
# <details><summary>Do quantised weights shrink the cache?</summary>
#
# No. They leave more room for it. The cache has a number format of its own.
#
# </details>
# <details><summary>Why do two calculators give different numbers for one model?</summary>
#
# Look for three things: the head size from a division, query heads in place of K/V heads, and GB for GiB. Then look for
# windows and latents.
#
# </details>
# <details><summary>Can I trust a number that nobody counted?</summary>
#
# Count it. Start the engine, and read the size of its tensors, as you did at the top.
#
# </details>

# %% [markdown] lang="zh" en="b85858b2"
# > **这一课没有说明的事**
# >
# > - 公式把每个注意力层都按完整的上下文计算，带窗口的层也不例外。面板和命令会把两种结果都给出来。
# > - 量化的缓存可能还要存缩放因子（scale），就像上面的 int8 那样。这时“一半”会比一半略多（[第 05 课](lessons/05_kv_quantization.ipynb)）。
# > - 按块分配的缓存池，每个请求的最后一块都会浪费一些。预留了却没用上的空间，是另一回事（[第 06 课](lessons/06_fragmentation.ipynb)）。
# > - 请求会变长。8,192 个 token 的请求放得下 5 个，但刚开始时请求还短，能放的要多得多。等它们都变长了怎么办，由调度器来管（[第 14 课](lessons/14_preemption.ipynb)）。
# > - 面板里的单步时间，假定显存和算力都跑满规格书上的速度。实际的一步要更久。
#
# ## 常见问题
#
# <details><summary>保存提示词，比保存回答更便宜吗？</summary>
#
# 不会。token 就是 token，公式不管它是谁写的。
#
# </details>
# <details><summary>权重量化了，缓存会变小吗？</summary>
#
# 不会，只是给缓存腾出了更多空间。缓存有它自己的数值格式。
#
# </details>
# <details><summary>同一个模型，为什么两个计算器算出的数不一样？</summary>
#
# 先查三件事：头的大小是不是除出来的，有没有把查询头当成 K/V 头，有没有把 GB 当成 GiB。然后再查窗口和潜在向量。
#
# </details>
# <details><summary>没有人真正数过的数，能信吗？</summary>
#
# 那就自己数。启动引擎，读出它的张量有多大，就像这一课开头那样。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - Bytes are 2 · L · K · D · S · B · b. You counted them in a running engine.
# - Requests are a budget divided by bytes: in one unit, rounded down, with every assumption said.
# - Parameters, hidden size and query heads are not in it. Windows, latents and copies on more GPUs are what bends it.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | K/V heads | K/V 头 | "heads" | heads that keep K and V; query heads may be many more |
# | GQA | 分组查询注意力 | "fewer heads" | several query heads read one K/V head |
# | GB, GiB | 十进制、二进制单位 | "gigs" | in bytes: 10 to the power of 9, 2 to the power of 30 |
# | KV budget | KV 预算 | "free memory" | memory used, less weights, less overhead |
# | tensor parallelism | 张量并行 | "TP" | every layer cut into parts, one for each GPU |
#
# **Open exercises.** *Easy:* size the model you use most, from its file, by hand. *Medium:* what is the longest
# context that 8 GPUs hold once for Llama-3-70B, with 60.5 GB left on each? *Research:* which of the six factors would
# you shrink in a model that you may train again, and what would you lose?
#
# **Back:** [01 · A KV cache in NumPy](lessons/01_numpy_kv_cache.ipynb) · **Next:**
# [03 · Roofline](lessons/03_roofline.ipynb)

# %% [markdown] lang="zh" en="193c6450"
# ## 三句话总结
#
# - 字节数是 2 · L · K · D · S · B · b，你在正在运行的引擎里亲手数过。
# - 请求数是预算除以字节数：单位统一，向下取整，所有假设都写明。
# - 公式里没有参数量、隐藏维度和查询头数。让实际结果偏离公式的，是窗口、潜在向量，以及多块 GPU 上的副本。
#
# | 术语 | 英文 | 常见说法 | 含义 |
# |---|---|---|---|
# | K/V 头 | K/V heads | “头数” | 保存 K 和 V 的头；查询头可以多得多 |
# | 分组查询注意力 | GQA | “头少一些” | 几个查询头读同一个 K/V 头 |
# | 十进制、二进制单位 | GB, GiB | “多少个 G” | 以字节计：10 的 9 次方、2 的 30 次方 |
# | KV 预算 | KV budget | “空闲显存” | 可用的显存，减去权重，再减去开销 |
# | 张量并行 | tensor parallelism | “TP” | 每一层都切成几份，每块 GPU 一份 |
#
# **开放练习。** *简单*：找出你最常用的模型，根据它的文件手算缓存大小。*中等*：8 块 GPU 每块剩 60.5 GB，只放一个请求，Llama-3-70B 的上下文最长能有多长？*研究*：如果能重新训练一个模型，六个因子里你会缩小哪一个？会因此失去什么？
#
# **上一课：** [01 · 用 NumPy 写 KV Cache](lessons/01_numpy_kv_cache.ipynb) · **下一课：**
# [03 · 屋顶线模型（roofline）](lessons/03_roofline.ipynb)
