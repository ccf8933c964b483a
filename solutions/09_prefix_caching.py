# %% [markdown] lang="en" tags=["goals"]
# # 09 · Prefix caching
#
# **The same words again: do not compute them twice.**
#
# 90 to 120 minutes · plain Python, no GPU · after lessons 03 and 06 to 08
#
# After this lesson you can
#
# - name a block so that two requests may share it exactly when its K and V are equal;
# - write what a prompt finds in the cache and what others may find, and run both in the engine;
# - say when "TTFT falls by 90%" is true, and when a prefix cache does nothing.

# %% [markdown] lang="zh" en="b00ae491"
# # 09 · 前缀缓存
#
# **同样的话又来了：别再算第二遍。**
#
# 90 到 120 分钟 · 纯 Python，不需要 GPU · 先学第 03 课和第 06 到 08 课
#
# 学完这一课，你能够：
#
# - 给块起名字，让两个请求当且仅当 K 和 V 相等时才共享它；
# - 写出两段代码，决定一个提示词能在缓存里找到什么、别人又能找到什么，并让它们在引擎里跑起来；
# - 说清“首 token 延迟（TTFT）降低 90%”什么时候成立，前缀缓存什么时候毫无作用。

# %%
import random
import time
from hashlib import sha256
from math import log

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.backends import AuditBackend
from mini_engine.backends.audit import KVCorruption
from mini_engine.cache import BlockHasher, KVCacheManager, NoFreeBlocksError, WeakHasher
from mini_engine.course import bugs_caught, check, panel, picture, predict, svg
from mini_engine.course.broken_allocator import BlockAllocator
from mini_engine.course.cache_matrix import chats, compare, static, table
from mini_engine.course.cache_requests import CacheUser, compute, decode, look_up, prefill
from mini_engine.course.cache_requests import start as admit
from mini_engine.course.film import film, frame
from mini_engine.course.own_prefix_cache import (
    HeadFirst,
    PrefixCacheLab,
    TrustingIndex,
    hit_share,
    manager_with,
    prompts_of,
)
from mini_engine.course.panels import p09_prefix_caching as pictures
from mini_engine.geometry import active_params, prefix_hit_tokens, weight_bytes
from mini_engine.roofline import prefill_flops, prefill_saving, prefill_time
from mini_engine.workload import load_trace, prefix_reuse

# %% [markdown] lang="en"
# ## The pain
#
# A chat server puts one **system prompt** before every question: rules, tone, tools. Six users ask something. `ask` sends a
# request to the engine, waits for the first token, and says how long.

# %% [markdown] lang="zh" en="b40b86e5"
# ## 痛点
#
# 聊天服务会在每个问题前面放同一段**系统提示词**（system prompt）：规则、语气、工具。六个用户各问一个问题。`ask` 把请求交给引擎，等到第一个 token 出来，再告诉你等了多久。


# %% tags=["claim-same-prompt"]
def ask(engine, name, tokens, salt=None, answer=1):
    """(milliseconds to the end of the answer, by default its first token; tokens found in the cache)"""
    params = SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True)
    engine.add_request(name, tokens, params, cache_salt=salt)
    begin, outputs = time.perf_counter(), []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return (time.perf_counter() - begin) * 1000, outputs[-1].num_cached_tokens


draw = random.Random(9)
system = [draw.randrange(2000) for _ in range(400)]
questions = [[draw.randrange(2000) for _ in range(20)] for _ in range(6)]
server = LLM("tiny-gqa", backend="numpy", enable_prefix_caching=False).engine
cold = [ask(server, f"user {i}", system + question)[0] for i, question in enumerate(questions)]
print(f"prompt tokens computed: {server.stats().num_prefill_tokens:,}")
print(f"different ones: {len(system)} + 6 x {len(questions[0])} = {len(system) + 6 * len(questions[0])}")

# %% [markdown] lang="en"
# 2,520 tokens were computed, only 520 of them different. Each user waited for the same 400 tokens again.
#
# Their K and V were in the cache, and were freed with the request. So: keep a freed block as it is until its room is needed,
# and look there first. That is a **prefix cache**.
#
# ## A name for a block
#
# How does the next request find the block? By a name made from its content, and that is more than its own tokens: K
# and V of a token depend on **all tokens before it**. So the name of block $k$ is a hash of its tokens and of the
# name before:
#
# $$H_k = \text{hash}(H_{k-1}, \text{tokens}_k, \text{extra})$$
#
# $H_{-1}$ is nothing, as nothing comes before the first block. `extra` is what else K and V depend on: the model, the
# adapter (LoRA), and a **salt**, of which more later.
#
# "Prefix caching uses a radix tree" is a mistake that people make about vLLM: it has these names. SGLang and
# [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/latest/features/kvcache.html) have the tree. Its nodes hold tokens.

# %% [markdown] lang="zh" en="886efd19"
# 一共算了 2,520 个 token，其中互不相同的只有 520 个。每个用户都在等同样的 400 个 token 重算一遍。
#
# 它们的 K 和 V 本来就在缓存里，只是随请求一起释放了。那就改一改：释放的块原样留着，直到别人要用它的空间；新请求来了，先到这些块里找。这就是**前缀缓存**（prefix cache）。
#
# ## 给块起个名字
#
# 下一个请求怎么找到这个块？靠一个由内容算出来的名字。但“内容”不只是块里的 token：一个 token 的 K 和 V 取决于**它前面的所有 token**。所以第 $k$ 块的名字，是本块 token 和前一个名字合在一起的哈希，一环扣一环，称为**哈希链**：
#
# $$H_k = \text{hash}(H_{k-1}, \text{tokens}_k, \text{extra})$$
#
# $H_{-1}$ 为空，因为第一块前面什么也没有。`extra` 是决定 K 和 V 的其他因素：模型、适配器（LoRA），还有**盐**（salt），后面会讲。
#
# 常有人这样说 vLLM：“前缀缓存用的是基数树（radix tree）。”这是误解，vLLM 用的正是上面这种名字。用树的是 SGLang 和 [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/latest/features/kvcache.html)，树的节点里存的是 token。

# %% tags=["diagram"]
svg(*pictures.chain_and_tree())

# %% [markdown] lang="en"
# ## Exercise 9.1 - name a block
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 3 lines
#
# Write `block_hash(parent, token_ids, extra)`.
#
# - `parent` is the name of the block before, `None` for the first block. `token_ids` is a list, a tuple or an array, NumPy's
#   too. The integers may be negative, or beyond 64 bits.
# - `extra` is `(model, adapter, salt)`. Each is a string or `None`, and `None` is not `""`.
# - Return bytes, 16 or more: the same for equal blocks, others for different ones.
#
# Small case: `block_hash(None, [1, 23], e)` and `block_hash(None, [12, 3], e)` are two names.

# %% [markdown] lang="zh" en="9ed47d88"
# ## 练习 9.1 - 给块起名字
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 3 行
#
# 写出 `block_hash(parent, token_ids, extra)`。
#
# - `parent` 是前一块的名字，对第一块来说是 `None`。`token_ids` 是列表、元组或数组，也可能是 NumPy 数组；里面的整数可以是负数，也可以超过 64 位。
# - `extra` 是 `(model, adapter, salt)`，每一项是字符串或 `None`；`None` 和 `""` 不是一回事。
# - 返回 bytes，长度至少为 16：相同的块名字相同，不同的块名字不同。
#
# 小例子：`block_hash(None, [1, 23], e)` 和 `block_hash(None, [12, 3], e)` 是两个不同的名字。


# %% exercise="block_hash"
def block_hash(parent, token_ids, extra):
    """The name of a block, as bytes."""
    ### BEGIN SOLUTION
    return sha256(repr((parent, [int(token) for token in token_ids], extra)).encode()).digest()
    ### END SOLUTION


# %% test="block_hash" points=2
block_hash = check("09.hash_block", block_hash)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `sha256(data).digest()` makes a name out of bytes. So all you need is one text for all three arguments.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `repr` of a tuple keeps commas, quotes and `None` apart. Encode it, and hash it. First make a list of `int(token)`: in a
# NumPy array a 7 prints as `np.int64(7)`.
#
# </details>
# <details><summary>Hint 3: "model, adapter and salt are in the name" fails</summary>
#
# Joined without a separator, `"a" + "bc"` is `"ab" + "c"`. And no salt must differ from an empty one.
#
# </details>
#
# Four names. Then your function in the engine names the blocks of the six users:

# %% [markdown] lang="zh" en="abc02e13"
# <details><summary>提示 1：从哪里入手</summary>
#
# `sha256(data).digest()` 能把字节变成名字。所以只要把三个参数变成一段文本就行。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 元组的 `repr` 会用逗号、引号和 `None` 把各项分清楚。把它编码成字节，再取哈希。先用 `int(token)` 做成列表：NumPy 数组里的 7 会打印成 `np.int64(7)`。
#
# </details>
# <details><summary>提示 3：“model, adapter and salt are in the name”这一项不通过</summary>
#
# 不加分隔直接拼起来，`"a" + "bc"` 就等于 `"ab" + "c"`。而且没有盐和空的盐必须有区别。
#
# </details>
#
# 先看四个名字，再让你的函数在引擎里给六个用户的块起名字：


# %% tags=["claim-chain", "claim-second-fast", "claim-hash-cost", "nbval-ignore-output"]
def microseconds(hash_block):
    """For each block of the system prompt, the best of nine tries."""
    tries = []
    for _ in range(9):
        begin, name = time.perf_counter(), None
        for i in range(0, len(system), 16):
            name = hash_block(name, system[i : i + 16])
        tries.append((time.perf_counter() - begin) * 16e6 / len(system))
    return min(tries)


nobody = ("tiny-gqa", None, None)
one, two = (block_hash(None, [start, 2, 3, 4], nobody) for start in (1, 9))
for words, parent, extra in (
    ("5 6 7 8 after 1 2 3 4", one, nobody),
    ("5 6 7 8 after 9 2 3 4", two, nobody),
    ("line 1, another adapter", one, ("tiny-gqa", "french", None)),
    ("line 1, another salt", one, ("tiny-gqa", None, "ann")),
):
    print(f"{words:<28}{block_hash(parent, [5, 6, 7, 8], extra).hex()[:16]}")
server = LLM("tiny-gqa", backend="numpy", kv_manager=manager_with(block_hash)).engine
waits = [ask(server, f"user {i}", system + question) for i, question in enumerate(questions)]
assert [found for _, found in waits] == [0] + [400] * 5
print("tokens found:", [found for _, found in waits])
print(f"prompt tokens computed: {server.stats().num_prefill_tokens:,}")
print("ms to the first token, without:", ", ".join(f"{wait:.1f}" for wait in cold))
print("ms to the first token, with:   ", ", ".join(f"{wait:.1f}" for wait, _ in waits))
print(f"us to name a block: the engine {microseconds(BlockHasher('tiny-gqa').hash_block):.1f}", end="")
print(f", you {microseconds(lambda parent, tokens: block_hash(parent, tokens, nobody)):.1f}", end="")
print(f"; to compute one: {min(cold) * 16000 / len(system + questions[0]):,.0f}")

# %% [markdown] lang="en"
# The first user pays. The others find 400 tokens, 25 blocks of 16, and their first token comes many times sooner.
#
# "A prefix cache is free", people say. Nearly: names are hashed also for prompts that find nothing. Even for a tiny model,
# computing a block takes far longer. And cached blocks count as free, so they refuse nobody. But they need a rule for who
# goes first.
#
# ## What a prompt finds
#
# Now the search. Walk the names from the first block on and stop at the first miss. How far may it go? A guess: a prompt
# that is cached from end to end.

# %% [markdown] lang="zh" en="4388b447"
# 第一个用户付出全部代价。后面的人都能找到 400 个 token，也就是 25 个块，每块 16 个槽位；他们等第一个 token 的时间，只有原来的几分之一。
#
# 有人说“前缀缓存是免费的”。几乎是：只不过，什么也没找到的提示词，名字也照样要算。就算模型这么小，算一个块也比给它起名字慢得多。而且缓存着的块算作空闲，不会因此拒绝任何请求。但要有一条规则，决定先逐出（evict）谁。
#
# ## 提示词能找到什么
#
# 现在来查找。从第一块的名字开始往后走，第一次没命中就停。最远能走到哪里？先猜一猜：一个 2,000 个 token 的提示词问了两遍，每块 16 个槽位。第二遍时它从头到尾都在缓存里，请求能找到多少个 token？

# %%
predict("09.full_hit", value=None)

# %% [markdown] lang="en"
# The first token of the answer is drawn from the logits of the last prompt token. The cache holds K and V, not logits. So one
# token at least must run, and a hit is at most `(len - 1) // block_size` blocks.
#
# ## Exercise 9.2 - match
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 9 lines
#
# Write `match(self, request)`: the numbers of the blocks that a prompt can use, in order. `PrefixCacheLab` is the engine's
# cache manager, with the parts laid open:
#
# - `self.names(request)`: the names of its full blocks. `self.find(name)`: a block of that name, or `None`.
# - `self.held(block)`: **all** tokens that this block stands for, from the first of the sequence on.
# - `request.token_ids`, `self.block_size`.
#
# Stop at the first miss. Leave a token to compute. Hashes can collide, so compare the tokens, those before the block too.
# Only look: change nothing.
#
# Small case: blocks of 4, and 1 to 8 is cached. The prompt 1 to 8 finds one block, and 1 to 9 finds two.

# %% [markdown] lang="zh" en="8e96e3b9"
# 回答的第一个 token，是从提示词最后一个 token 的 logits 里采样出来的。缓存里有 K 和 V，没有 logits。所以至少要留一个 token 来算，最多命中 `(len - 1) // block_size` 个块。
#
# ## 练习 9.2 - match
#
# 难度 3/5 · 重要性 5/5 · 15 分钟 · 大约 9 行
#
# 写出 `match(self, request)`：按顺序返回这个提示词可以使用的块的编号。`PrefixCacheLab` 就是引擎的缓存管理器，只是把内部的部件摆出来给你用：
#
# - `self.names(request)`：请求里各个填满的块的名字。`self.find(name)`：叫这个名字的块，没有就是 `None`。
# - `self.held(block)`：这个块所代表的**全部** token，从序列的第一个 token 算起。
# - `request.token_ids`、`self.block_size`。
#
# 第一次没命中就停。留一个 token 来算。哈希可能碰撞，所以要比较 token，这个块之前的也要比。只查找：什么都不要改。
#
# 小例子：每块 4 个槽位，缓存里有 1 到 8。提示词 1 到 8 能找到一个块，1 到 9 能找到两个块。


# %% exercise="MyMatch"
class MyMatch(PrefixCacheLab):
    def match(self, request):
        """The blocks that hold the longest computed prefix of the request."""
        ### BEGIN SOLUTION
        hits, size = [], self.block_size
        for name in self.names(request)[: (len(request.token_ids) - 1) // size]:
            block = self.find(name)
            end = (len(hits) + 1) * size
            if block is None or self.held(block) != request.token_ids[:end]:
                break
            hits.append(block)
        return hits
        ### END SOLUTION


# %% test="MyMatch" points=3
MyMatch = check("09.match", MyMatch)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# A loop over the first `(len(request.token_ids) - 1) // self.block_size` names, with a `break`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# For name number i: find the block. If there is none, stop. If `self.held(block)` differs from
# `request.token_ids[: (i + 1) * self.block_size]`, stop. Append it.
#
# </details>
# <details><summary>Hint 3: "believes tokens, not names" fails</summary>
#
# Two heads can collide, and the same tokens follow. Compare all that `held` gives.
#
# </details>

# %% [markdown] lang="zh" en="2458a193"
# <details><summary>提示 1：从哪里入手</summary>
#
# 对前 `(len(request.token_ids) - 1) // self.block_size` 个名字循环，里面有一个 `break`。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 对名字 i：找块。没有就停。如果 `self.held(block)` 不等于 `request.token_ids[: (i + 1) * self.block_size]`，也停。否则加入结果。
#
# </details>
# <details><summary>提示 3：“believes tokens, not names”这一项不通过</summary>
#
# 两个不同的开头可能碰撞，后面又跟着同样的 token。`held` 给出的 token 要全部比较。
#
# </details>

# %% tags=["claim-full-hit"]
engine = LLMEngine(EngineConfig(num_blocks=512, block_size=16), AuditBackend(), kv_manager=MyMatch)
prompt = [draw.randrange(64) for _ in range(2000)]
for name, tokens in (("cold", prompt), ("all of it", prompt), ("100 more", prompt + prompt[:100])):
    _, found = ask(engine, name, tokens)
    print(f"{name:<12}{len(tokens):,} tokens, {found:,} found, {len(tokens) - found:,} computed")
print(f"formula: min(2,000 // 16, 1,999 // 16) x 16 = {prefix_hit_tokens(2000, 2000, 16):,}")

# %% [markdown] lang="en"
# ## What others may find
#
# When may a block be found? Many allocators enter the name when they hand the block out: the tokens are known. Here is one,
# and a user who goes away while her prompt is being computed.

# %% [markdown] lang="zh" en="78f5a85a"
# ## 别人能找到什么
#
# 一个块什么时候可以让人找到？很多分配器在把块交出去的那一刻就登记名字，反正 token 已经知道了。下面就是这样一个分配器；再看一个用户，她的提示词还没算完，人就走了。


# %% tags=["claim-too-early"]
class TooEarly(KVCacheManager):
    def allocate(self, request, num_tokens):
        """Room for the whole prompt, and all of its names at once."""
        hit, computed = super().allocate(request, len(request.token_ids)), request.num_computed_tokens
        request.num_computed_tokens = len(request.token_ids)  # a lie, to publish them all
        self.publish(request)
        request.num_computed_tokens = computed
        return hit


def leave_early(manager):
    engine = LLMEngine(
        EngineConfig(num_blocks=16, block_size=4, max_num_batched_tokens=8), AuditBackend(), kv_manager=manager
    )
    engine.add_request("ann", list(range(24)), SamplingParams(max_tokens=4))
    engine.step()  # 8 of her 24 tokens
    engine.abort("ann")
    engine.step()
    try:
        return f"{ask(engine, 'bob', [*range(24), 30])[1]} tokens found, and they are right"
    except KVCorruption as error:
        return f"wrong K/V: {error}"


print("at allocation:", leave_early(TooEarly))
print("when computed:", leave_early(KVCacheManager))

# %% [markdown] lang="en"
# The audit backend knows who wrote each slot. A real model would have read whatever lay there and talked on.
#
# So the engine publishes **after** the step has computed the block. Decoded blocks too: an answer comes back as part of the
# next prompt.
#
# ## Exercise 9.3 - publish
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 2 lines
#
# Write `publish(self, request)`. The engine calls it after each step. `self.enter(request, i)` lets others find block i of
# the request; it returns 1, or 0 if they could already.
#
# - Enter each block that is full **and** computed, from the first on: a block is found through the one before it.
#   `request.num_computed_tokens` counts tokens that have K and V.
# - Return how many are new.
#
# Small case: blocks of 4, 9 tokens known, 7 computed: one block may be found.

# %% [markdown] lang="zh" en="5f883aa2"
# 审计后端（audit）知道每个槽位是谁写的。换成真实模型，不管那里残留着什么，它都会读进来，接着往下写。
#
# 所以，引擎要等这一步把块算完**之后**才发布。解码填满的块也要发布：这次的回答，会成为下一轮提示词的一部分。
#
# ## 练习 9.3 - publish
#
# 难度 2/5 · 重要性 5/5 · 10 分钟 · 大约 2 行
#
# 写出 `publish(self, request)`，引擎每一步之后都会调用它。`self.enter(request, i)` 让别人能找到请求的块 i；它返回 1，如果别人本来就能找到，则返回 0。
#
# - 从第一块开始，登记每一个已经填满**并且**算完的块：因为要找一个块，先得经过它前面的块。`request.num_computed_tokens` 是已经有 K 和 V 的 token 数。
# - 返回新登记了几个块。
#
# 小例子：每块 4 个槽位，已知 9 个 token，算完 7 个：能让人找到的只有一个块。


# %% exercise="MyPublish"
class MyPublish(PrefixCacheLab):
    def publish(self, request):
        """Let others find the blocks that are full and computed; how many are new."""
        ### BEGIN SOLUTION
        return sum(self.enter(request, i) for i in range(request.num_computed_tokens // self.block_size))
        ### END SOLUTION


# %% test="MyPublish" points=1
MyPublish = check("09.publish", MyPublish)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `len(request.token_ids)` counts what is known, and the newest token is known before it is computed.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Call `enter` for each i below `num_computed_tokens // block_size`, and add up what it returns.
#
# </details>
# <details><summary>Hint 3: "what decoding fills is found too" fails</summary>
#
# Do not stop at the prompt. Decoding makes `num_computed_tokens` grow too.
#
# </details>
#
# ## What goes first
#
# The cache fills up. First **blank** blocks are taken, those that nobody could find. Then goes the cached block that was
# unused for longest (**LRU**). But the blocks of a prompt become free at the same moment. In which order do they queue?

# %% [markdown] lang="zh" en="6ab8bd7c"
# <details><summary>提示 1：从哪里入手</summary>
#
# `len(request.token_ids)` 数的是已知的 token，而最新的那个 token，是先知道、后计算的。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 对小于 `num_computed_tokens // block_size` 的每个 i 调用 `enter`，把返回值加起来。
#
# </details>
# <details><summary>提示 3：“what decoding fills is found too”这一项不通过</summary>
#
# 不要停在提示词那里。解码也会让 `num_computed_tokens` 增长。
#
# </details>
#
# ## 先逐出谁
#
# 缓存会满。先用**空白**块，也就是没有名字、谁也找不到的块。空白块用完了，就轮到最久没人用过的那个缓存块（**LRU**，最近最少使用）。可是，一个提示词的所有块是同时空出来的，它们该按什么顺序排队？先猜一猜：内存只有四个块，每块 4 个槽位。一个 16 个 token 的提示词正好占满，然后从开头开始释放；接着有一个块被重用。这时来了一个提示词，是同样的 16 个 token 再加一个。能找到多少个 token？

# %%
predict("09.tails", value=None)

# %% tags=["claim-tails"]
for words, manager in (("head first", HeadFirst), ("tail first", KVCacheManager)):
    cache = manager(4, 4)
    a = CacheUser("a", list(range(16)))
    prefill(cache, a)
    cache.free(a)
    prefill(cache, CacheUser("b", [50]))  # takes one block
    print(f"freed {words}: 3 of 4 blocks are left, {look_up(cache, [*range(16), 99])} tokens found")

# %% [markdown] lang="en"
# A tail is worthless without its head. So the engine frees in reverse.
#
# ## How large must the cache be?
#
# 40 chats of 5 turns on one system prompt, in the order of their arrival. The trace is synthetic (`multi_turn` in
# `mini_engine.workload`). Each prompt holds all that was said before.

# %% [markdown] lang="zh" en="4b16c78a"
# 没有开头，结尾就毫无用处。所以引擎倒着释放，结尾先被逐出。
#
# ## 缓存要多大
#
# 40 段对话，每段 5 轮，共用同一段系统提示词，按到达顺序排列。这份请求记录是合成的（`mini_engine.workload` 里的 `multi_turn`）。每个提示词都包含之前说过的所有内容。

# %% tags=["claim-hit-rate", "claim-chain-or-tree"]
trace = load_trace("synthetic_multi_turn_block16.jsonl")
prompts, sizes = prompts_of(trace), (96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
curve = {size: hit_share(prompts, KVCacheManager(size, 16)) for size in sizes}
trees = {size: hit_share(prompts, KVCacheManager(size, 16, prefix_index="radix")) for size in sizes[::3]}
assert all(trees[size] == curve[size] for size in trees)
total, begin, endless = (
    sum(map(len, prompts)),
    next(i for i, tokens in enumerate(zip(*prompts)) if len(set(tokens)) > 1),
    float(prefix_reuse(trace).by_tokens),
)
share = (len(prompts) - 1) * begin / total
print(f"{len(prompts)} prompts, {total:,} tokens; {begin} begin each prompt: {share:.1%} are found again")
print(f"a radix tree finds the same: {', '.join(f'{found:.1%}' for found in trees.values())}")
print(f"an endless cache finds {endless:.1%}", end="")
service = prefix_reuse(load_trace("synthetic_mooncake_conversation.jsonl")).by_tokens
print(f"; with the statistics of Mooncake's chats {float(service):.1%}")
picture(pictures.hits, curve=curve, limit=endless, system=share)

# %% [markdown] lang="en"
# The system prompt is there even in a small cache: 53%. From about 512 blocks on, the chats survive from one turn to the
# next. At 1,536 all that comes back is found: 81.7%. More memory buys nothing.
#
# Is 81.7% typical? No, we made it up. A trace with the statistics of
# [Mooncake's chats](https://arxiv.org/abs/2407.00079) comes to 37.4% at most.
#
# ## Watch it
#
# Blocks of 4, eight of them, one request at a time. Ann, Bob and Dan begin with the same 12 tokens. Cat comes in between with
# a long prompt of her own. Which block does she take?

# %% [markdown] lang="zh" en="37aa0101"
# 缓存再小，系统提示词也总在里面：53%。大约从 512 个块起，对话能从这一轮留到下一轮。到 1,536 个块，凡是再次出现的都能找到：81.7%。再加内存也没用。
#
# 81.7% 有代表性吗？没有，数据是我们自己造的。换一份统计特征与 [Mooncake 的对话](https://arxiv.org/abs/2407.00079)相同的请求记录，最多只有 37.4%。
#
# ## 亲眼看一看
#
# 每块 4 个槽位，一共八个块，一次只处理一个请求。Ann、Bob 和 Dan 的开头是同样的 12 个 token。Cat 带着自己的长提示词插在中间。她会占用哪个块？

# %%
engine = LLMEngine(EngineConfig(num_blocks=8, block_size=4, max_num_seqs=1), AuditBackend(), record=True)
rules = list(range(1, 13))
for name, tokens in (
    ("ann", [*rules, 20, 21]),
    ("bob", [*rules, 30]),
    ("cat", list(range(40, 57))),
    ("dan", [*rules, 22]),
):
    engine.add_request(name, tokens, SamplingParams(temperature=0, max_tokens=3))
while engine.has_unfinished_requests():
    engine.step()
film(engine)

# %% tags=["claim-film", "claim-three-ways"]
hit = prefix_hit_tokens(12, 13, 4)
event = next(event for event in engine.film if event["kind"] == "step" and event["step"] == 9)
print(f"formula: {hit} tokens; engine: Dan's first chunk starts at token {event['chunks'][0]['start']}")
print("picture:", frame(engine, 9).words.split(": ")[1])
assert hit == event["chunks"][0]["start"]
assert f"{hit} tokens need no computing" in frame(engine, 9).words
frame(engine, 6)

# %% [markdown] lang="en"
# Step 6: Cat needs five blocks, and four are blank. (Block 5 too: Bob never filled it, so it has no name.) One cached block
# is lost: block 4, Ann's tail. The head, 1 to 3, survives, and in step 9 Dan finds it. `shared` stays 0: it counts holders
# at one time, and here they come one by one.
#
# ## How much faster?
#
# You will read that prefix caching cuts the time to the first token (**TTFT**) by up to 90%
# ([an example](https://www.nirmalya.net/posts/2026/02/ttft-optimisation-practical-patterns)). Of what prompts is that
# true? And a story goes with it: a system prompt of 2,000 tokens, and TTFT falls "from 2 s to 100 ms". Two guesses:

# %% [markdown] lang="zh" en="9a3c59b9"
# 第 6 步：Cat 要五个块，空白的只有四个。（块 5 也算空白：Bob 始终没把它填满，所以它没有名字。）于是要逐出一个缓存块：块 4，也就是 Ann 的结尾。开头的块 1 到 3 还在，第 9 步 Dan 找到了它们。`shared` 一直是 0：它数的是同一时刻的持有者，而这里的请求是一个接一个来的。
#
# ## 快多少
#
# 你会读到，前缀缓存能让**首 token 延迟**（TTFT）最多降低 90%（[例如这篇](https://www.nirmalya.net/posts/2026/02/ttft-optimisation-practical-patterns)）。这话对什么样的提示词成立？还有一个常见的故事：系统提示词 2,000 个 token，TTFT“从 2 s 降到 100 ms”。猜两个数。第一问：缓存里有 2,000 个 token 的前缀，要让整个提示词至少九成的 token 在缓存里，提示词最长可以有多少个 token？第二问：用两块 H100 算 2,000 个 token 的提示词，模型、计算量和峰值算力见下面的题目。如果花了两秒，用到的是峰值的百分之几？

# %%
predict("09.longest_prompt", value=None)
predict("09.mfu", value=None)

# %% tags=["claim-ttft", "claim-two-seconds"]
spec, gpu = get_model("llama-3-70b"), get_gpu("h100-sxm")
shape = spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim
reading = weight_bytes(spec) / (2 * gpu.memory_bandwidth)


def least(length, cached, mfu):
    """Seconds of two H100: computing what is left, or reading the weights, whichever is longer (lesson 03)."""
    flops = prefill_flops(active_params(spec), length - cached, *shape, done=cached)
    return float(max(prefill_time(flops, gpu.bf16_flops, 2, mfu), reading))


def saved(length, mfu):
    return 1 - least(length, prefix_hit_tokens(2000, length, 16), mfu) / least(length, 0, mfu)


print("2,000 cached of  tokens   FLOPs   time at 50% of the peak, at 100%")
for length in (2000, 2100, 2222, 2223, 4000):
    share = prefill_saving(2000, length, 16, spec)
    print(f"{length:15,}{float(share.token_share):8.2%}{float(share.flop_share):8.2%}", end="")
    print(f"{saved(length, '0.5'):26.1%}{saved(length, '1'):9.1%}")
for mfu in ("0.5", "1"):
    best = max(range(2000, 2400), key=lambda length: saved(length, mfu))
    enough = [length for length in range(2000, 2400) if saved(length, mfu) >= 0.9]
    told = f"90% up to {enough[-1]:,} tokens" if enough else "90% at no length"
    print(f"at {float(mfu):.0%} of the peak at most {saved(best, mfu):.1%} of the time, {told}")
flops = prefill_flops(active_params(spec), 2000, *shape)
attention = 1 - 2 * active_params(spec) * 2000 / flops
print(f"reading {weight_bytes(spec) / 1e9:.1f} GB of weights: {reading * 1000:.1f} ms")
print(f"2,000 tokens: {flops:.4g} FLOPs, {attention:.1%} of them attention")
print("   ", ", ".join(f"{least(2000, 0, mfu):.3f} s at {float(mfu):.0%}" for mfu in ("1", "0.5", "0.07")))
panel(pictures.ttft, prefix=(2000, 0, 8000, 250), prompt=(2100, 100, 10000, 100), mfu=(50, 5, 100, 5))

# %% [markdown] lang="en"
# So: 90% of the *tokens* need a prompt of at most 2,222. In FLOPs it is slightly less, since the rest attends to all of the
# prefix. In *time* there is a floor: the weights are read, however few tokens are left. That takes 21.1 ms. At half the
# peak (the share is called **MFU**) 90% is true up to 2,217 tokens. At the full peak it never is: 87.3% at most.
#
# And a request that waits 1 s for its turn still waits. The 2 s? At half the peak it takes 0.291 s. Two seconds of pure
# computing would be 7% MFU. More likely somebody stood in a line.
#
# ## Neighbours
#
# Two things can go wrong between users. First, **collisions**. Here names are cut to 2 bytes, and the index believes a name
# without looking at the tokens:

# %% [markdown] lang="zh" en="fdec07c2"
# 所以，按 **token** 算，要让 90% 来自缓存，提示词最长 2,222 个 token。按 FLOPs 算略少一点，因为剩下的 token 要对整个前缀做注意力。而按**时间**算，有一个下限：剩下的 token 再少，权重也要读一遍，这要 21.1 ms（第 03 课的屋顶线模型）。算力用到峰值的一半时（这个比例叫 **MFU**），提示词不超过 2,217 个 token 时，90% 成立。跑满峰值时，它永远不成立：最多 87.3%。
#
# 还有，排队要等 1 s 的请求，照样要等。那 2 s 呢？用到峰值的一半时，只要 0.291 s。如果两秒全花在计算上，MFU 就只有 7%。更可能是请求在排队。
#
# ## 邻居
#
# 用户之间可能出两种问题。第一种是**碰撞**。这里把名字截成 2 字节，而且索引只信名字，不看 token：


# %% tags=["claim-collision"]
class TwoBytes(BlockHasher):
    def hash_block(self, parent, token_ids):
        return block_hash(parent, token_ids, self.namespace)[:2]


def collide(**options):
    cache = KVCacheManager(64, 4, hasher=TwoBytes(), **options)
    prefill(cache, CacheUser("ann", [*victim, 1]))
    return look_up(cache, [*twin, 1])


seen = {}
while True:
    block = [draw.randrange(64) for _ in range(4)]
    name = TwoBytes().hash_block(None, block)
    if name in seen and seen[name] != block:
        victim, twin = seen[name], block
        break
    seen[name] = block
print(f"after {len(seen) + 1} blocks: {victim} and {twin} have one name")
print(f"believing names, Bob's {twin} finds {collide(prefix_index=TrustingIndex)} tokens: Ann's K and V")
print(f"comparing tokens, it finds {collide()}")
for bits in (16, 64, 256):  # the chance of one equal pair among n names is about n x n / 2 / 2**bits
    even = (2 * log(2) * 2**bits) ** 0.5
    many = {16: f"{even:.0f}", 64: f"{even / 1e9:.1f} billion", 256: f"{even:.0e}"}[bits]
    print(f"{bits:3} bits: even odds of a collision among {many} blocks")

# %% [markdown] lang="en"
# Names of 64 bits last for about 5.1 billion blocks, by chance. So: a wide hash with model, adapter and salt in it, and the
# tokens compared on a hit.
#
# Second, **timing**. Mallory wants to know what Ann asked. He can send guesses, and take the time.

# %% [markdown] lang="zh" en="34be3953"
# 如果碰撞全凭偶然，64 位的名字大约够 51 亿个块用。所以：哈希要足够宽，里面要有模型、适配器和盐，命中时还要比较 token。
#
# 第二种是**计时**。Mallory 想知道 Ann 问了什么。他可以把猜测一个个发出去，看各要多久。

# %% tags=["claim-salt", "nbval-ignore-output"]
server = LLM("tiny-gqa", backend="numpy").engine
guesses = {who: [draw.randrange(2000) for _ in range(320)] for who in ("divorce", "a new job", "a diagnosis")}
for words, salts in (("no salt", (None, None)), ("a salt each", ("ann", "mallory"))):
    server.reset_prefix_cache()
    ask(server, "ann", guesses["a new job"], salts[0])
    timed = {guess: ask(server, guess, tokens, salts[1]) for guess, tokens in guesses.items()}
    assert [found for _, found in timed.values()] == [0, 304 if words == "no salt" else 0, 0]
    print(f"{words:<12}", "; ".join(f"{guess} {found}, {wait:.0f} ms" for guess, (wait, found) in timed.items()))

# %% [markdown] lang="en"
# Without a salt the clock tells him. With one, Ann's blocks have names that he cannot make. The price: salted users share
# nothing, unless a salt stands for a company.
#
# ## When it does nothing

# %% [markdown] lang="zh" en="97ad793b"
# 没有盐，时间就泄露了答案。有了盐，Ann 的块用的是他造不出来的名字。代价是：盐不同的用户之间什么也不共享，除非整个公司用同一个盐。
#
# ## 什么时候毫无作用

# %% tags=["claim-counter-example"]
rules = [draw.randrange(64) for _ in range(96)]


def mine(n):
    return [draw.randrange(64) for _ in range(n)]


cases = {
    "the rules first": (64, [rules + mine(30) for _ in range(10)]),
    "shared: 15 tokens of a block of 16": (64, [rules[:15] + mine(111) for _ in range(10)]),
    "the time of day before the rules": (64, [[number, *rules, *mine(29)] for number in range(10)]),
    "a cache of 8, long prompts in between": (8, [p for _ in range(5) for p in (rules + mine(30), mine(126))]),
}
for words, (num_blocks, asked) in cases.items():
    print(f"{words:<40}{hit_share(asked, KVCacheManager(num_blocks, 16)):6.1%} of prompt tokens found")
talker = LLMEngine(EngineConfig(num_blocks=64, block_size=16), AuditBackend())
for name in ("miss", "hit"):
    before = talker.stats()
    ask(talker, name, rules, answer=33)
    after = talker.stats()
    print(f"{name:<4} {after.num_prefill_tokens - before.num_prefill_tokens} tokens of the prompt computed, ", end="")
    print(f"{after.num_decode_tokens - before.num_decode_tokens} decoded one by one")

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# One token at the front, a clock or a user's name, changes every name behind it. Put what changes last. And decode is no
# shorter: a hit and a miss both decode 32 tokens one by one.
#
# ## Exercise 9.4 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 25 minutes · about 40 lines
#
# Write tests that a broken prefix cache cannot pass. Your function is given `make`: `make(8, 4)` is a cache of 8 blocks of 4. In
# `make(8, 4, hasher=WeakHasher())` names collide: they are the sum of a block's tokens modulo 7. Raise AssertionError if the
# cache is broken. Fourteen broken ones wait, and three right ones, one of them a radix tree.
#
# - A request is `CacheUser("a", tokens, cache_salt="ann")`. `admit(cache, a)` gives it room. `compute(cache, a)` computes
#   and publishes. `prefill` does both, and returns the tokens found. `decode(cache, a, 7)` adds a token.
# - Look with `look_up(cache, tokens, salt)`: the tokens that a prompt would find. `cache.pool.num_free` counts free blocks.
# - Also `cache.free(a)` and `cache.publish(a)`; `cache.pool.evict(block)` wipes a free block. What does not fit raises
#   `NoFreeBlocksError`.
#
# Here is one of the fourteen (`blocks_entered` counts what others can find):
#
# ```python
# def publish(self, request):
#     if blocks_entered(self, request) > 0:
#         return 0
#     return super().publish(request)
# ```

# %% [markdown] lang="zh" en="9e2036df"
# 开头多一个 token，比如时间或用户名，后面的名字就全变了。会变的内容要放到最后。另外，解码不会变短：命中也好，没命中也好，都要逐个解码 32 个 token。
#
# ## 练习 9.4 - 找出 bug
#
# 难度 4/5 · 重要性 4/5 · 25 分钟 · 大约 40 行
#
# 写一些测试，让坏的前缀缓存过不了。你的函数会拿到 `make`：`make(8, 4)` 是一个有 8 个块、每块 4 个槽位的缓存。`make(8, 4, hasher=WeakHasher())` 的名字会碰撞：名字是块内 token 之和除以 7 的余数。如果缓存是坏的，就抛出 AssertionError。等着你的有十四个坏的和三个正确的，正确的里面有一个是基数树。
#
# - 请求写成 `CacheUser("a", tokens, cache_salt="ann")`。`admit(cache, a)` 给它分配空间。`compute(cache, a)` 计算并发布。`prefill` 两件事都做，返回找到的 token 数。`decode(cache, a, 7)` 追加一个 token。
# - 用 `look_up(cache, tokens, salt)` 查看：一个提示词能找到多少 token。`cache.pool.num_free` 是空闲块数。
# - 还有 `cache.free(a)` 和 `cache.publish(a)`；`cache.pool.evict(block)` 把一个空闲块变成空白。放不下时抛出 `NoFreeBlocksError`。
#
# 下面是十四个中的一个（`blocks_entered` 数的是别人能找到的块）：
#
# ```python
# def publish(self, request):
#     if blocks_entered(self, request) > 0:
#         return 0
#     return super().publish(request)
# ```


# %% exercise="my_tests"
def my_tests(make):
    """Raise AssertionError if the caches made by make(num_blocks, block_size) are broken."""
    ### BEGIN SOLUTION
    cache = make(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5, 6])
    admit(cache, a)
    assert look_up(cache, [1, 2, 3, 4, 9]) == 0  # not computed yet
    compute(cache, a)
    assert look_up(cache, [1, 2, 3, 4, 9]) == 4
    decode(cache, a, 7)
    a.token_ids.append(8)
    cache.publish(a)
    assert look_up(cache, range(1, 10)) == 4  # 8 is sampled, not computed
    compute(cache, a)
    cache.free(a)
    assert (look_up(cache, range(1, 10)), look_up(cache, range(1, 9))) == (8, 4)

    cache = make(8, 2)
    prefill(cache, CacheUser("a", [1, 2, 3, 4, 5], cache_salt="ann"))
    assert look_up(cache, [1, 2, 3], "ann") == 2
    assert look_up(cache, [1, 2, 3], "bob") == look_up(cache, [1, 2, 3]) == look_up(cache, [3, 4, 1], "ann") == 0
    cache = make(8, 2, hasher=WeakHasher())
    prefill(cache, CacheUser("a", [1, 2, 9]))
    assert look_up(cache, [3, 7, 9]) == 0

    def served(cache, *prompts):
        for number, tokens in enumerate(prompts):
            user = CacheUser(str(number), tokens)
            prefill(cache, user)
            cache.free(user)
        return cache

    assert look_up(served(make(4, 2), range(8), [50]), range(9)) == 6  # the tail goes first
    cache = served(make(3, 2), [1, 2], [3, 4], [5], [6])  # a blank block was left
    assert look_up(cache, [1, 2, 0]) == look_up(cache, [3, 4, 0]) == 2
    cache = served(make(2, 2), [1, 2], [3, 4], [5])  # the oldest goes first
    assert (look_up(cache, [1, 2, 0]), look_up(cache, [3, 4, 0])) == (0, 2)

    cache = served(make(4, 2), [1, 2, 3, 4, 5])
    b = CacheUser("b", [1, 2, 3, 4, 6])
    prefill(cache, b)
    assert cache.pool.num_free == 1
    cache.free(b)
    try:
        admit(cache, CacheUser("long", range(1, 12)))
        raise AssertionError("6 blocks came out of 4")
    except NoFreeBlocksError:
        assert cache.pool.num_free == 4
    prefill(cache, CacheUser("c", range(20, 28)))
    assert look_up(cache, [1, 2, 3, 4, 5]) == 0  # those blocks hold something else now

    cache = make(4, 2)
    twins = [CacheUser(name, [1, 2, 3]) for name in "ab"]
    for step in (admit, compute):
        for twin in twins:
            step(cache, twin)
    cache.free(twins[0])
    for block in set(cache.pool.published_blocks()) - set(twins[1].block_table):
        cache.pool.evict(block)
    if cache.pool.is_published(twins[1].block_table[0]):
        assert look_up(cache, [1, 2, 3]) == 2  # its twin is still there
    ### END SOLUTION


# %% test="my_tests" points=3
my_tests = bugs_caught(my_tests, "09")

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# For each bug that got away, the check says where to look.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# When may a block be found? What is the same content: order, salt, a collision? What goes first? Who holds what after a hit,
# and after a refusal?
#
# </details>
# <details><summary>Hint 3: a right cache is refused</summary>
#
# Do not expect certain block numbers. A cache may keep both of two equal blocks, or one.
#
# </details>
#
# ## Exercise 9.5 - mend an allocator
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 20 lines
#
# `mini_engine/course/broken_allocator.py` is a small prefix-caching allocator that reads well: open it. Mend three of its
# methods in a subclass:
#
# - `release` gives the head up first. The tail is to be reused first, and all of it behind what is free already.
# - `append` never names a block that decoding fills. `self.by_digest` maps a name to its block, `block.digest` is that name,
#   `self.digest(parent, tokens)` makes one.
# - `start` raises MemoryError in the middle, and keeps what it took. Count first, then take.
#
# It is still no cache to use. Left as they are, to keep this short: blocks are found before they are computed. A
# hit may be the whole prompt. Names have 64 bits, tokens are not compared, and -1 raises OverflowError.
#
# The check also makes random calls, and compares what is held, free and findable.

# %% [markdown] lang="zh" en="1c550b69"
# <details><summary>提示 1：从哪里入手</summary>
#
# 每个漏网的 bug，检查都会告诉你该看哪里。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 一个块什么时候可以被找到？什么才算同样的内容：顺序、盐、碰撞？先逐出谁？命中之后谁持有什么，被拒绝之后呢？
#
# </details>
# <details><summary>提示 3：正确的缓存被拒绝了</summary>
#
# 不要指望块的编号是某个固定值。两个相同的块，缓存可以都留着，也可以只留一个。
#
# </details>
#
# ## 练习 9.5 - 修好一个分配器
#
# 难度 3/5 · 重要性 4/5 · 15 分钟 · 大约 20 行
#
# `mini_engine/course/broken_allocator.py` 是一个带前缀缓存的小分配器，代码很好读：打开看看。在子类里修好它的三个方法：
#
# - `release` 从开头开始释放。应该让结尾先被重用，而且这些块全都排在已经空闲的块后面。
# - `append` 从不给解码填满的块起名字。`self.by_digest` 从名字找到块，`block.digest` 就是这个名字，`self.digest(parent, tokens)` 用来算名字。
# - `start` 做到一半抛出 MemoryError，却不归还已经占用的块。要先数清楚，再取块。
#
# 修好之后，它也还不是能用的缓存。为了简短，下面这些保持原样：块还没算就能被找到；命中可能覆盖整个提示词；名字只有 64 位，命中时不比较 token；遇到 -1 会抛出 OverflowError。
#
# 检查还会随机调用，并比较哪些块被持有、哪些空闲、哪些能找到。


# %% exercise="Mended"
class Mended(BlockAllocator):
    def release(self, sequence):
        """Give up the blocks of a sequence, so that its tail is reused first."""
        ### BEGIN SOLUTION
        for block in reversed(sequence.blocks):
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free[block.number] = block
        ### END SOLUTION

    def append(self, sequence, token):
        """Enter one more token; a block that is full now gets its name."""
        ### BEGIN SOLUTION
        super().append(sequence, token)
        last = sequence.blocks[-1]
        parent = sequence.blocks[-2].digest if len(sequence.blocks) > 1 else 0
        if len(last.tokens) == self.block_size and parent is not None:
            last.digest = self.digest(parent, last.tokens)
            self.by_digest[last.digest] = last
        ### END SOLUTION

    def start(self, prompt):
        """Admit a prompt, wholly or not at all."""
        ### BEGIN SOLUTION
        hits, parent, size = [], 0, self.block_size
        for first in range(0, len(prompt) // size * size, size):
            parent = self.digest(parent, prompt[first : first + size])
            block = self.by_digest.get(parent)
            if block is None:
                break
            hits.append(block)
        needed = -(-len(prompt) // size) - len(hits) + sum(block.ref_count == 0 for block in hits)
        if needed > len(self.free):
            raise MemoryError(f"{needed} blocks needed, {len(self.free)} free")
        return super().start(prompt)
        ### END SOLUTION


# %% test="Mended" points=2
Mended = check("09.mend", Mended)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# One line in `release` is wrong. Lines are missing at the end of `append`, and before `start`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# In `start`, walk the names first and collect the hits. Needed are all other blocks, the last one too, and the hits that lie
# in `self.free`. If they are too many, raise. If not, `return super().start(prompt)`.
#
# </details>
# <details><summary>Hint 3: "what decoding fills is found again" fails</summary>
#
# The name needs its parent: the digest of the block before, 0 for the first. Two blocks may get one name: name both.
#
# </details>

# %% [markdown] lang="zh" en="e91e691d"
# <details><summary>提示 1：从哪里入手</summary>
#
# `release` 有一行不对。`append` 的末尾缺几行，`start` 的前面也缺几行。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 在 `start` 里，先顺着名字走，收集命中的块。需要的是其余所有的块（最后那个没填满的也算），再加上命中之中还在 `self.free` 里的块。不够就抛出异常；够的话，`return super().start(prompt)`。
#
# </details>
# <details><summary>提示 3：“what decoding fills is found again”这一项不通过</summary>
#
# 算名字要用到父块：前一块的 digest，第一块用 0。两个块可能得到同一个名字：两个都要起名。
#
# </details>

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# A chat, second turn:

# %% [markdown] lang="zh" en="1d1f90db"
# ## 自测
#
# 一段对话的第二轮。每块 16 个槽位。第一轮的提示词有 40 个 token，回答有 24 个 token。第二轮把这些全部发出去，再加上 10 个 token。能找到多少个 token？

# %% tags=["self-check"]
predict("09.second_turn", value=None)

# %% [markdown] lang="en"
# ## All of them, side by side
#
# Lessons 06 to 09 in one table. 24 users share 96 tokens of rules, and every third wants four answers. All have
# 4,096 slots and the same arrivals.
#
# - `used`, `idle`: shares of the slots taken. `outside`: free, but too little for who waits.
# - `held`: slots taken times steps, in thousands. `steps`: how long all took.
# - `copied`: slots whose K and V were moved. `shared`: the most that was saved at one time by holding a block together.
# - `again`: prompt tokens that had been computed before. In a contiguous memory the other answers may copy the prompt.

# %% [markdown] lang="zh" en="d69727be"
# ## 放在一起比
#
# 第 06 到 09 课汇成一张表。24 个用户共用 96 个 token 的规则，每三个人里有一个要四个回答。五种管理方式都有 4,096 个槽位，请求到达的时刻也完全相同。
#
# - `used`、`idle`：占用的槽位里，用上的和闲置的比例。`outside`：空着，但不够正在等的请求用。
# - `held`：占用的槽位乘以步数，单位是千。`steps`：全部做完用了多少步。
# - `copied`：搬动过 K 和 V 的槽位数。`shared`：靠共同持有块，同一时刻最多省下多少槽位。
# - `again`：以前已经算过、又算了一遍的提示词 token 数。在连续内存里，其余几个回答可以复制提示词。

# %% tags=["claim-matrix"]
rows = compare(chats())
print(table(rows))
longest = max(len(one.prompt) + one.output for one in chats())
print(f"longest request {longest} tokens; static by what is reserved for each:")
for limit in (256, 512, 1024):
    row = static(chats(), limit)
    print(f"{limit:6,}: {row.used_share:.1%} used, {1 - row.used_share:.1%} idle, {row.num_steps} steps")

# %% [markdown] lang="en"
# - **Static** reserves 512, and 68.4% idles. That is our choice: with 256 it is 36.9%. **Buddies** lose some outside.
# - **Concatenating** copies 367,414 slots. It even admits by the final length, which nobody knows, and the second array
#   while it copies is not counted.
# - **Paging** shares the prompt among the four answers, and copies only a last block that is not full. All are done after
#   109 steps, in place of 311.
# - **The prefix cache** shares among users too. It computes 3 tokens twice, in place of 2,211: some questions begin alike by
#   chance. Its `used` share falls, while `held` falls from 241 to 139: the full blocks are one now, and the last ones are as
#   empty as before.
#
# [vAttention](https://arxiv.org/abs/2405.04437) has no row: it needs the GPU driver's page tables.

# %% [markdown] lang="zh" en="d6623e69"
# - **静态分配**预留 512，68.4% 闲置。这是我们选的：预留 256 的话是 36.9%。**伙伴分配器**还会在外部损失一些。
# - **拼接**（concatenated）要拷贝 367,414 个槽位。这里还假定它接纳请求时就知道最终长度，实际上没人知道；拷贝时的第二个数组也没有计入。
# - **分页**让四个回答共享提示词，只复制没填满的最后一块。全部做完用了 109 步，而不是 311 步。
# - **前缀缓存**还能在用户之间共享。算了两遍的只有 3 个 token，而不是 2,211 个：有些问题的开头碰巧相同。它的 `used` 比例降低了，`held` 却从 241 降到 139：填满的块如今只存一份，而各个请求没填满的最后一块还是那么空。
#
# [vAttention](https://arxiv.org/abs/2405.04437) 没有列进来：它需要 GPU 驱动的页表。

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Names as of 2026: the main branches of vLLM and SGLang.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | prefix cache | on; `--no-enable-prefix-caching` | on; `--disable-radix-cache` |
# | index | hash chain, `BlockPool`, `cached_block_hash_to_block` | radix tree, `RadixCache` |
# | hash | `--prefix-caching-hash-algo`: `sha256`, `sha256_cbor`, `xxhash` | none for the tree |
# | salt | `cache_salt` in the request | `cache_salt`, `extra_key` |
# | what goes first | `FreeKVCacheBlockQueue`: LRU, tails first | leaves of the tree, `--radix-eviction-policy` |
#
# When two requests compute equal blocks at once, vLLM keeps both, as we do: its block tables are only appended to.
#
# > **What this does not show**
# >
# > - Traffic of a real service. Our chats are synthetic, and their hit rate says nothing about yours.
# > - Time on a GPU. Our TTFT is a floor: computing, or reading the weights, without queue, launch or network.
# > - Several servers. A request finds only what its own server has.
# > - Tiers. K and V can be kept in host memory or on disk, and be read back.
# > - Reuse of text in the middle of a prompt: it has other K and V at another place.

# %% [markdown] lang="zh" en="bc9f806d"
# ## 在生产系统中
#
# 名称以 2026 年 vLLM 和 SGLang 的 main 分支为准。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | 前缀缓存 | 默认开启；`--no-enable-prefix-caching` | 默认开启；`--disable-radix-cache` |
# | 索引 | 哈希链，`BlockPool`、`cached_block_hash_to_block` | 基数树，`RadixCache` |
# | 哈希 | `--prefix-caching-hash-algo`：`sha256`、`sha256_cbor`、`xxhash` | 树不需要 |
# | 盐 | 请求里的 `cache_salt` | `cache_salt`、`extra_key` |
# | 先逐出谁 | `FreeKVCacheBlockQueue`：LRU，结尾先逐出 | 树的叶子，`--radix-eviction-policy` |
#
# 两个请求同时算出相同的块时，vLLM 和我们一样，两份都留着：它的块表只能在末尾追加。
#
# > **这一课没有说明的事**
# >
# > - 真实服务的流量。我们的对话是合成的，命中率说明不了你那里的情况。
# > - GPU 上的时间。我们的 TTFT 是下限：要么是计算，要么是读权重，不含排队、kernel 启动和网络。
# > - 多台服务器。请求只能找到自己那台服务器上的内容。
# > - 多级缓存。K 和 V 可以放在主机内存或磁盘里，需要时读回来。
# > - 重用提示词中间的文本：换了位置，K 和 V 就不一样了。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Does a hit change the answer?</summary>
#
# No: the K and V are the same. But a prompt computed in two pieces can differ in the last digit, and at a near-tie another
# token may win.
#
# </details>
# <details><summary>Why whole blocks? SGLang's page has one token.</summary>
#
# A partly filled block still changes. Pages of one token lose nothing to rounding, and cost a longer table and a finer index.
#
# </details>
# <details><summary>The weights were updated. Is the cache still right?</summary>
#
# No. K and V belong to the old weights. `engine.reset_prefix_cache()` forgets them. It refuses while a block is in use.
#
# </details>

# %% [markdown] lang="zh" en="3440d429"
# ## 常见问题
#
# <details><summary>命中会改变回答吗？</summary>
#
# 不会：K 和 V 是一样的。但分两段计算的提示词，最后一位数字可能不同；两个 token 几乎打平时，胜出的可能是另一个。
#
# </details>
# <details><summary>为什么要整块？SGLang 的页只有一个 token。</summary>
#
# 没填满的块还会变。一个 token 一页不会因取整损失什么，代价是表更长、索引更细。
#
# </details>
# <details><summary>权重更新了，缓存还对吗？</summary>
#
# 不对。K 和 V 属于旧权重。`engine.reset_prefix_cache()` 会把它们全部忘掉；只要还有块在用，它就拒绝执行。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A block's name covers its tokens, all before them, and model, adapter and salt. On a hit the tokens are compared.
# - Publish what is computed, whoever filled it. Free tails first. Take all or nothing. Leave one token to compute.
# - The gain is at most the share of the prompt that is cached, and the weights are still read.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | prefix cache | 前缀缓存 | "prompt caching" | freed blocks that can be found by content |
# | hash chain | 哈希链 | "block hash" | each name covers the one before |
# | radix tree | 基数树 | "RadixAttention" | a tree whose nodes are runs of tokens |
# | salt | 盐 | "cache isolation" | a word in the name that others do not know |
# | LRU | 最近最少使用 | "oldest first" | what was unused for longest goes first |
#
# **Open exercises.** *Easy:* plot the hits for blocks of 4 and of 64. What do large blocks cost?
# *Medium:* write an index that publishes partly filled blocks, by copying on a hit. How many more tokens are hit?
# *Research:* LRU knows only time. Can a policy that counts uses do better?
#
# **Back:** [08 · Copy-on-write](lessons/08_copy_on_write.ipynb) · **Next:** [10 · Triton GQA decode kernel](lessons/10_triton_gqa.ipynb)

# %% [markdown] lang="zh" en="e6ddfc10"
# ## 三句话总结
#
# - 块的名字涵盖本块的 token、前面的所有 token，以及模型、适配器和盐。命中时要比较 token。
# - 算完的才发布，不管是谁填的。结尾先释放。要么全部拿到，要么一个也不拿。留一个 token 来算。
# - 收益最多等于提示词中已在缓存里的部分所占的比例，而且权重还是要读。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | 前缀缓存 | prefix cache | “prompt caching” | 已经释放、还能按内容找到的块 |
# | 哈希链 | hash chain | “block hash” | 每个名字都涵盖前一个名字 |
# | 基数树 | radix tree | “RadixAttention” | 节点是一段段 token 的树 |
# | 盐 | salt | “cache isolation” | 名字里别人不知道的一个词 |
# | 最近最少使用 | LRU | “oldest first” | 最久没用过的先逐出 |
#
# **开放练习。** *简单*：画出每块 4 个和 64 个槽位时的命中率。大块的代价是什么？*中等*：写一个索引，连没填满的块也发布，命中时复制。能多命中多少 token？*研究*：LRU 只看时间。统计使用次数的策略能做得更好吗？
#
# **上一课：** [08 · 写时复制](lessons/08_copy_on_write.ipynb) · **下一课：** [10 · Triton GQA 解码 kernel](lessons/10_triton_gqa.ipynb)
