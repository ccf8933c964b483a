# %% [markdown] lang="en" tags=["goals"]
# # 00 · Start here
#
# **A language model writes one token at a time. This course is about doing that fast.**
#
# 30 to 40 minutes · CPU only · nothing to read first
#
# After this lesson you can
#
# - say what happens between a prompt and its answer, and name its two phases;
# - write the loop that every language model runs;
# - name the trade behind the KV cache, and read its price from a table.

# %% [markdown] lang="zh" en="17700ad3"
# # 00 · 从这里开始
#
# **语言模型一次只写一个 token。这门课讲的就是怎样让它写得快。**
#
# 30 到 40 分钟 · 只需 CPU · 不用预先读任何材料
#
# 学完这一课，你能够：
#
# - 说清楚从提示词到回答之间发生了什么，并说出其中的两个阶段；
# - 写出每个语言模型都在跑的那个循环；
# - 说出 KV Cache 拿什么换什么，并从一张表里读出它的代价。

# %%
import time

import numpy as np
from IPython.display import clear_output

from mini_engine import LLM, SamplingParams
from mini_engine.attention import causal_attention, softmax
from mini_engine.course import check, panel, predict, svg
from mini_engine.course.panels import p00_start_here as pictures
from mini_engine.models import available_models, load_model

# %% [markdown] lang="en"
# ## Ask it something
#
# Run the next cell and watch the text arrive. It does not come all at once. It comes in pieces, left to right, after a
# short wait.
#
# Why the pieces? Why the wait? The whole course is an answer to these two questions.
#
# (If SmolLM2 is installed, a real model of 135 million parameters answers. It is small, so not all that it says is
# true. If not, an even smaller model that comes with the course takes over. It has read six novels by Jane Austen and
# *Moby Dick*, so do not ask it about France.)

# %% [markdown] lang="zh" en="1204f0a8"
# ## 先问它一句
#
# 运行下一个单元格，看着文字出现。它不是一下子全出来的：先要等一小会儿，然后从左到右，一段一段地冒出来。
#
# 为什么是一段一段的？为什么要先等？整门课就是在回答这两个问题。
#
# （如果装了 SmolLM2，回答你的是一个 1.35 亿参数的真实模型。它很小，说的话不一定都对。没装的话，就由课程自带的、更小的模型来回答。它只读过简·奥斯汀的六部小说和《白鲸》，所以别问它法国的事。）

# %% tags=["nbval-ignore-output"]
question = "What is the capital of France, and what is it known for?"
if "smollm2-135m" in available_models():
    llm = LLM("smollm2-135m")
    prompt = llm.tokenizer.apply_chat_template([{"role": "user", "content": question}])
else:
    llm = LLM("tiny-gqa")
    prompt = "The young lady"
start, wait = time.perf_counter(), None
for output in llm.stream(prompt, SamplingParams(temperature=0, max_tokens=64)):
    wait = wait or time.perf_counter() - start
    clear_output(wait=True)  # each piece: the text so far takes the place of the text before
    print(f"(first piece after {wait:.2f} s)\n{output.outputs[0].text}", end="")

# %% [markdown] lang="en"
# ## A model reads tokens
#
# A model never sees letters. A **tokenizer** cuts text into pieces called tokens and gives each piece a number, its id.
# Frequent pieces get a token of their own. Everything else is put together from several.
#
# The space before a word belongs to its token. So `' Emma'` inside a sentence is one token. `'Emma'` at the beginning is
# seen less often, and takes two.
#
# From here on we use the small model, because it runs anywhere and its numbers are the same on every machine.

# %% [markdown] lang="zh" en="416144a7"
# ## 模型读的是 token
#
# 模型看不到字母。**分词器**（tokenizer）把文本切成小段，每一段叫一个 token，并给每一段一个编号，也就是 id。常见的片段各有自己的 token，其余的都由几个 token 拼成。
#
# 单词前面的空格算在这个单词的 token 里。所以在句子中间，`' Emma'` 是一个 token；放在句首的 `'Emma'` 没那么常见，要用两个。
#
# 从这里开始我们都用小模型：它在哪儿都能跑，而且在每台机器上算出的数都一样。

# %%
tiny = load_model("tiny-gqa", backend="numpy")
print("id    token")
for i in tiny.tokenizer.encode("Emma was extraordinarily happy, dear Emma!"):
    print(f"{i:<5} {tiny.tokenizer.decode([i])!r}")

# %% [markdown] lang="en"
# ## A model answers with scores
#
# Give the model a row of tokens, and it gives back one score for every token it knows: how well would this one come
# next? These scores are called **logits**. Softmax turns them into probabilities.
#
# That is all it does. One call, one guess at one token.

# %% [markdown] lang="zh" en="8992a1d6"
# ## 模型给出的是分数
#
# 给模型一串 token，它会给自己认识的每一个 token 打分：把它接在后面有多合适？这些分数叫做 **logits**，经过 softmax 就变成概率。
#
# 模型做的事仅此而已：调用一次，猜一个 token。

# %%
scale = tiny.spec.head_dim**-0.5


def logits_of(tokens):
    """The scores of the next token: run the model over the whole sequence, keep the last row."""
    return tiny.model.forward(tokens, range(len(tokens)), attend, [len(tokens) - 1])[0]


def attend(layer, q, k, v):
    """How tokens look at each other in a layer. Lesson 01 is about this line."""
    return causal_attention(q, k, v, scale)


prompt = "Emma was"
ids = tiny.tokenizer.encode(prompt)
logits = logits_of(ids)
probabilities = softmax(logits)
print(f"{len(logits):,} scores. The five best guesses after {prompt!r}:")
for i in np.argsort(-logits)[:5]:
    print(f"{probabilities[i]:6.1%}  {tiny.tokenizer.decode([int(i)])!r}")

# %% [markdown] lang="en"
# ## Exercise 0.1 - the loop
#
# Difficulty 1/5 · importance 5/5 · 10 minutes
#
# One guess is one token. An answer is many tokens. So: guess, append, guess again.
#
# Write `generate(next_token, prompt, max_tokens, stop_token)`.
#
# - `next_token(tokens)` takes the **whole** sequence so far, a list of ids, and returns one id.
# - Return the new tokens only, at most `max_tokens` of them. Zero is allowed.
# - If the model says `stop_token`, stop. Keep that token in your answer. Any id can be the stop token, 0 too.
# - The caller's `prompt` must not change.
#
# For example, a model that always adds one, prompt `[7]`, three tokens: `[8, 9, 10]`.
#
# Write it into the next cell, and run the one after that: it checks your answer. `[ok]` means right. `[no]` names what is
# wrong, and shows the smallest case. `[todo]` means not written yet. Until it is right, the lesson goes on with a
# reference version, so you can leave an exercise open.

# %% [markdown] lang="zh" en="59dc0b6f"
# ## 练习 0.1 - 循环
#
# 难度 1/5 · 重要性 5/5 · 10 分钟
#
# 猜一次只得到一个 token，一个回答却有许多 token。那就猜一个，接到后面，再接着猜。
#
# 请写出 `generate(next_token, prompt, max_tokens, stop_token)`。
#
# - `next_token(tokens)` 的参数是截至目前的**整个**序列（一个 id 列表），返回值是一个 id。
# - 只返回新的 token，最多 `max_tokens` 个。也允许是零个。
# - 如果模型给出 `stop_token`，就停下来，并把这个 token 留在结果里。任何 id 都可以用作停止 token，0 也不例外。
# - 不能改动调用者传进来的 `prompt`。
#
# 例如，一个总是加一的模型，提示词是 `[7]`，要三个 token，结果就是 `[8, 9, 10]`。
#
# 把答案写进下一个单元格，再运行它后面的那一个：它会检查你的答案。`[ok]` 表示正确；`[no]` 会指出哪里不对，并给出最小的例子；`[todo]` 表示还没写。答对之前，课程用参考答案接着往下走，所以练习可以先空着。检查结果用英文输出：expected 是应有的结果，got 是你的结果。


# %% exercise="generate"
def generate(next_token, prompt, max_tokens, stop_token=None):
    """The tokens that follow `prompt`: at most `max_tokens`, ending early after `stop_token`."""
    ### BEGIN SOLUTION
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(tokens))
        if tokens[-1] == stop_token:
            break
    return tokens[len(prompt) :]
    ### END SOLUTION


# %% test="generate" points=1 tags=["claim-loop"]
generate = check("00.generate", generate)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# You need two things: the sequence that the model reads, and the number of new tokens so far. One list can hold both,
# if you remember how long the prompt was.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# 1. Copy the prompt into a new list.
# 2. Repeat `max_tokens` times: call `next_token` on the list, append the result, stop if it is `stop_token`.
# 3. Return the part of the list after the prompt.
#
# </details>
# <details><summary>Hint 3: "leaves its inputs unchanged"</summary>
#
# `tokens = prompt` gives one list two names. `tokens = list(prompt)` makes a second list.
#
# </details>

# %% [markdown] lang="zh" en="315a4a7b"
# <details><summary>提示 1：从哪里入手</summary>
#
# 你需要两样东西：给模型读的序列，以及到目前为止新 token 的个数。只要记住提示词有多长，一个列表就能同时提供这两样。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 1. 把提示词复制到一个新列表里。
# 2. 重复 `max_tokens` 次：对这个列表调用 `next_token`，把结果追加进去；如果它是 `stop_token`，就停下来。
# 3. 返回列表中提示词之后的部分。
#
# </details>
# <details><summary>提示 3：“leaves its inputs unchanged”</summary>
#
# `tokens = prompt` 只是给同一个列表又起了个名字。`tokens = list(prompt)` 才会新建一个列表。
#
# </details>

# %% [markdown] lang="en"
# Now give the loop a real model. The loop is yours, or the reference while your exercise is open. The engine runs the
# same model with a loop of its own. Both must say the same.

# %% [markdown] lang="zh" en="b0ea566a"
# 现在把循环接到真正的模型上。这个循环是你写的；如果练习还没完成，就用参考答案。引擎用它自己的循环跑同一个模型，两边的输出必须一样。

# %%
new = generate(lambda tokens: int(np.argmax(logits_of(tokens))), ids, max_tokens=24)
text = tiny.tokenizer.decode(new)
greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
engine = LLM("tiny-gqa", backend="numpy")
answer = engine.generate([prompt], greedy, progress=False)[0].outputs[0]
print(f"the loop writes: {prompt}{text}")
print(f"same tokens as the engine: {new == answer.token_ids}")

# %% [markdown] lang="en"
# ## What a forgetful model costs
#
# Look at what your loop does. To guess token 10 it reads all tokens from the first on. To guess token 11 it reads them
# all again, and one more. It forgets everything between two calls.
#
# One token going once through the model is a **token-forward**. It is our unit of work. Take a prompt of 4 tokens and an
# answer of 3. How many token-forwards is that? Put your guess in place of `None`.

# %% [markdown] lang="zh" en="a9c7a16a"
# ## 健忘的模型有多费力
#
# 看看你的循环在做什么。为了猜第 10 个 token，它要从头读一遍所有 token。为了猜第 11 个，又要从头全部再读一遍，还多读一个。两次调用之间，它什么都没记住。
#
# 一个 token 在模型里走一遍，叫做一次 **token 前向**（token-forward），我们就用它作为工作量的单位。假设提示词有 4 个 token，回答有 3 个，一共是多少次 token 前向？把你的猜测写在 `None` 的位置上。

# %%
predict("00.tokens_run", value=None)

# %% [markdown] lang="en" tags=["question"]
# <details><summary><b>Question.</b> Which of those token-forwards are wasted?</summary>
#
# All but 6. The first pass needs its 4 tokens. Each later pass brings one token that the model has not seen. The rest
# are repeats. And what they compute does not change, as lesson 01 shows.
#
# </details>

# %% [markdown] lang="zh" en="c4487e17"
# <details><summary><b>问题。</b>这些 token 前向里，哪些是浪费的？</summary>
#
# 除了 6 次，其余都是。第一轮前向必须跑 4 个 token。之后每一轮只有一个 token 是模型没见过的，剩下的全是重复。而且重复算出来的结果并不会变，第 01 课会说明这一点。
#
# </details>

# %% [markdown] lang="en"
# ## The idea: keep what does not change
#
# Inside each layer a token leaves two short vectors for the tokens after it: a **key** and a **value**, K and V. Later
# tokens look at nothing else of it. So compute K and V once, and keep them. That store is the **KV cache**.
#
# The work now falls into two phases.
#
# - **Prefill**: the whole prompt goes through the model in one pass and fills the cache. This is the wait before the
#   first piece.
# - **Decode**: one new token goes through per pass, reads the cache and adds to it. These are the pieces.

# %% [markdown] lang="zh" en="68f5a327"
# ## 思路：把不变的留下来
#
# 在每一层里，一个 token 会给后面的 token 留下两个短向量：**键**（key）和**值**（value），也就是 K 和 V。后面的 token 只看它的这两样东西。所以 K 和 V 算一次，然后留着就行。存放它们的地方就是 **KV Cache**。
#
# 于是工作分成两个阶段。
#
# - **预填充**（prefill）：用一轮前向跑完整个提示词，把缓存填好。第一段文字出现之前，等的就是它。
# - **解码**（decode）：每一轮只跑一个新 token，它读取缓存，再往缓存里添上自己的一份。一段一段冒出来的文字就是这么来的。

# %% tags=["diagram", "claim-two-phases"]
svg(*pictures.life_of_a_request())

# %% [markdown] lang="en"
# ## Turn the sliders
#
# Each row is one pass through the model. A dark square is a token that runs. A light square is a token whose K and V
# come from the cache. Left of the dotted line is the prompt, right of it what the model has written.

# %% [markdown] lang="zh" en="3137c769"
# ## 拖动滑块
#
# 每一行是模型的一轮前向。深色方块是这一轮要跑的 token，浅色方块是 K 和 V 直接取自缓存的 token。虚线左边是提示词，右边是模型写出来的内容。

# %%
panel(pictures.passes, prompt=(4, 1, 12), output=(6, 1, 12))

# %% [markdown] lang="en"
# The same for three sizes as a table, the last one too large to draw.

# %% [markdown] lang="zh" en="c06c3cc8"
# 再看三种规模，这次列成表格。最后一种太大，画不出来。

# %%
print("prompt  output  without cache  with cache")
for n, m in [(4, 3), (12, 12), (500, 200)]:
    without, cached = pictures.count_both(n, m)  # goes through every pass
    print(f"{n:6,} {m:7,} {without:14,} {cached:11,}")

# %% [markdown] lang="en"
# ## The price
#
# Nothing is free. You pay for the saved work with memory, and you pay until the answer is finished. Here is the trade on
# the small model: the same text, once without a cache and once with one.
#
# The engine counts the token-forwards. The bytes follow from the model's sizes. A token that is kept holds one K and one
# V, in each layer, for each K/V head. The numbers are float64 here, so each takes eight bytes.

# %% [markdown] lang="zh" en="763eb31d"
# ## 代价
#
# 天下没有免费的午餐。省下来的计算要用内存来换，而且要一直占到回答结束为止。下面就在小模型上算算这笔账：同一段文字，一次不用缓存，一次用缓存。
#
# token 前向的次数由引擎来数，字节数则由模型的结构参数算出。每保留一个 token，就要在每一层、为每个 K/V 头存一个 K 和一个 V。这里的数是 float64，每个占八个字节。

# %% tags=["claim-trade"]
runs, longer = {}, SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
for cache in ("none", "contiguous"):
    engine = LLM("tiny-gqa", backend="numpy", cache=cache)
    start = time.perf_counter()
    output = engine.generate([prompt], longer, progress=False)[0].outputs[0]
    runs[cache] = (output.token_ids, engine.last_stats, time.perf_counter() - start)
spec, number_bytes = tiny.spec, np.dtype(np.float64).itemsize
token_bytes = 2 * spec.num_hidden_layers * spec.num_key_value_heads * spec.head_dim * number_bytes
print("cache        token-forwards   cache bytes")
for cache, (_, stats, _) in runs.items():
    kept = 0 if cache == "none" else stats.num_forward_tokens  # each token that ran is kept
    print(f"{cache:<12} {stats.num_forward_tokens:14,} {kept * token_bytes:13,}")
print(f"same tokens: {runs['none'][0] == runs['contiguous'][0]}")

# %% tags=["nbval-ignore-output"]
for cache, (_, _, seconds) in runs.items():
    print(f"{cache:<12} {seconds:6.2f} s")

# %% [markdown] lang="en" tags=["claim-reserved-room"]
# Memory is where the story goes on. Nobody knows beforehand how long an answer gets. An engine that wants one piece of
# memory per request must reserve room for the longest one, and most of it stays empty.
#
# vLLM, an engine that serves many users at once, does without. It hands memory out in small pages of equal size, as an
# operating system does. When its authors measured this in 2023, earlier designs filled between 20.4% and 38.2% of their
# cache memory with tokens. With pages, it was 96.3% ([Kwon et al.](https://arxiv.org/abs/2309.06180), figure 2).
#
# Suppose we reserve the model's whole context for the request above:

# %% [markdown] lang="zh" en="54306c88"
# 故事接下来要讲的正是内存。谁也没法提前知道一个回答会有多长。如果引擎要为每个请求准备一整块内存，就只能按最长的情况预留，而其中大部分一直是空的。
#
# vLLM 是一个同时服务大量用户的引擎，它不这样做：它像操作系统那样，把内存分成大小相同的小页，用到时再分配。vLLM 的作者在 2023 年做过测量：在之前的设计里，缓存内存中真正存着 token 的只占 20.4% 到 38.2%；改用分页之后是 96.3%（[Kwon et al.](https://arxiv.org/abs/2309.06180)，图 2）。
#
# 假如给上面那个请求预留模型的整个上下文：

# %% tags=["claim-reserved-room"]
used, reserved = runs["contiguous"][1].num_forward_tokens, spec.max_position_embeddings
print(f"reserved for {reserved:,} tokens, used for {used}: {used / reserved:.1%}")

# %% [markdown] lang="en" tags=["claim-picture-to-keep"]
# <details><summary><b>A picture to keep.</b> The reader with a notebook</summary>
#
# You read a long contract and write a summary. Without notes, you reread the contract before every word you write.
# With notes, you read it once, and look at your notes before every word. The notes are the cache. They take paper, one
# page for every page you read. Looking through them takes time too, and the longer they get, the more time it takes.
#
# </details>

# %% [markdown] lang="zh" en="8db2be23"
# <details><summary><b>记住这个画面。</b>做笔记的读者</summary>
#
# 你在读一份很长的合同，要写一份摘要。没有笔记的话，每写一个字之前都得把合同重读一遍。有了笔记，合同只需要读一遍，每写一个字之前翻翻笔记就行。笔记就是缓存。它要占纸：每读一页，就多一页笔记。翻笔记也要花时间，笔记越长，翻得越久。
#
# </details>

# %% [markdown] lang="en"
# ## Where this leads
#
# Six steps carry the whole course. Each one is the answer to a problem that the step before leaves behind.

# %% [markdown] lang="zh" en="383d1316"
# ## 接下来去哪里
#
# 整门课由六步串起来，每一步都在解决上一步留下的问题。

# %% tags=["diagram", "claim-course-map"]
svg(*pictures.course_map())

# %% [markdown] lang="en"
# | step | because | so | lessons |
# |---|---|---|---|
# | 1 | the K and V of past tokens never change | compute them once and keep them | 00, 01 |
# | 2 | every kept token takes bytes | know how many, before they run out | 02 |
# | 3 | every new token reads all of them again | decoding waits for memory, not for arithmetic | 03 |
# | 4 | bytes are what counts | keep fewer of them for each token | 04, 05 |
# | 5 | reserved memory stays empty | hand memory out in pages, share them, read them with a kernel | 06 to 11 |
# | 6 | free memory is room for more requests | schedule many requests at once, down to the whole engine | 12 to 15 |

# %% [markdown] lang="zh" en="775aa124"
# | 步骤 | 因为 | 所以 | 课 |
# |---|---|---|---|
# | 1 | 已有 token 的 K 和 V 永远不变 | 只算一次，然后留着 | 00、01 |
# | 2 | 每保留一个 token 都要占字节 | 在内存用完之前就算清楚要多少 | 02 |
# | 3 | 每个新 token 都要把它们再读一遍 | 解码等的是内存，不是算力 | 03 |
# | 4 | 起决定作用的是字节数 | 让每个 token 少占一些字节 | 04、05 |
# | 5 | 预留的内存一直空着 | 按页分配、共享，再用 kernel 来读 | 06 到 11 |
# | 6 | 空闲的内存可以容纳更多请求 | 同时调度许多请求，直到搭出完整的引擎 | 12 到 15 |

# %% [markdown] lang="en"
# ## Is your machine ready?
#
# The doctor looks at versions, at the model files and at the notebook set-up. If something is missing, it names the
# command that mends it. In a terminal, `mini-engine doctor` says more.

# %% [markdown] lang="zh" en="199410aa"
# ## 你的机器准备好了吗？
#
# doctor 会检查各个软件的版本、模型文件和 notebook 环境。缺什么，它就告诉你该用哪条命令补上。在终端里运行 `mini-engine doctor`，能看到更详细的信息。

# %% tags=["nbval-ignore-output"]
from mini_engine.doctor import examine

for finding in examine():
    print(f"{finding.status:>7}  {finding.name}", f"-> {finding.remedy}" if finding.remedy else "")

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# A request has a prompt of 100 tokens and gets 20 new ones, with a KV cache. How many forward passes does it take? How
# many tokens run in the first of them? Put your numbers in place of `None` and run the cell again.

# %% [markdown] lang="zh" en="44ba6295"
# ## 自测
#
# 一个请求的提示词有 100 个 token，生成 20 个新 token，使用 KV Cache。一共需要几轮前向？第一轮要跑多少个 token？把你的数写在 `None` 的位置上，再运行一次这个单元格。

# %% tags=["self-check"]
predict("00.passes", value=None)
predict("00.first_pass", value=None)

# %% [markdown] lang="en" tags=["in-production"]
# ## In production
#
# vLLM and SGLang are open-source engines that serve many users at once. Transformers is Hugging Face's library of models.
# This is what the things of this lesson are called there.
#
# | here | vLLM (main branch, 2026) | SGLang (0.5.23) | Transformers (5.24.0) |
# |---|---|---|---|
# | `LLM.generate` | `LLM.generate` | `Engine.generate` | `model.generate` |
# | prefill, decode | one step can hold both | `ForwardMode.EXTEND`, `ForwardMode.DECODE` | prefill, then a decode loop |
# | `cache="contiguous"` | none: pages only | none: pages only | `StaticCache` |
#
# `ForwardMode` is the kind of pass that SGLang is about to run. `StaticCache` is one piece of memory per request, its length
# fixed beforehand.

# %% [markdown] lang="zh" en="3d0a03b1"
# ## 在生产系统中
#
# vLLM 和 SGLang 是开源引擎，能同时服务大量用户。Transformers 是 Hugging Face 的模型库。这一课里的东西，在它们那里的叫法如下。
#
# | 本课 | vLLM（main 分支，2026） | SGLang（0.5.23） | Transformers（5.24.0） |
# |---|---|---|---|
# | `LLM.generate` | `LLM.generate` | `Engine.generate` | `model.generate` |
# | 预填充、解码 | 一步之内可以两者都有 | `ForwardMode.EXTEND`、`ForwardMode.DECODE` | 先预填充，再进入解码循环 |
# | `cache="contiguous"` | 没有，只有分页 | 没有，只有分页 | `StaticCache` |
#
# `ForwardMode` 表示 SGLang 即将执行的是哪一种前向。`StaticCache` 为每个请求准备一整块内存，长度事先固定。

# %% [markdown] lang="en" tags=["limits"]
# > **What this does not show**
# >
# > - The seconds above belong to a very small model on a CPU. Only the counts carry over to other machines.
# > - One request at a time. Serving many at once changes what is fast and what is slow.
# > - Fewer token-forwards is not the same as less time in equal measure. Lesson 01 measures both.
# > - The vLLM figures come from one paper, one model and its own workloads.

# %% [markdown] lang="zh" en="12c908e6"
# > **这一课没有说明的事**
# >
# > - 上面的秒数来自 CPU 上一个非常小的模型。换一台机器仍然成立的只有次数。
# > - 这里一次只处理一个请求。同时服务许多请求时，什么快、什么慢都会变。
# > - token 前向减少了，时间并不会按同样的比例减少。第 01 课会把两者都测出来。
# > - vLLM 的那几个数字只出自一篇论文，测的是一个模型和论文自选的负载。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Why is the first token slow and the rest steady?</summary>
#
# The first token waits for the prefill, which runs the whole prompt. Each later token waits for one pass of one token.
# A prompt ten times longer means about ten times more prefill work. The pace afterwards changes far less.
#
# </details>
# <details><summary>Does a KV cache change the answer?</summary>
#
# No. It keeps numbers that would come out the same if they were computed again. They agree to the last few digits, not
# to the last bit. Lesson 01 shows why.
#
# </details>
# <details><summary>Why not guess several tokens in one call?</summary>
#
# Each token depends on the one before it, so the model must know that one first. Tricks exist that guess ahead and
# verify the guesses in one pass. They still verify every token.
#
# </details>

# %% [markdown] lang="zh" en="027c74da"
# ## 常见问题
#
# <details><summary>为什么第一个 token 慢，后面的却很平稳？</summary>
#
# 第一个 token 要等预填充，而预填充要跑完整个提示词。后面每个 token 只等一轮前向，这一轮只跑一个 token。提示词的长度变成十倍，预填充的工作量大约也变成十倍，之后的生成速度变化却小得多。
#
# </details>
# <details><summary>KV Cache 会改变回答吗？</summary>
#
# 不会。它存下来的数，重算一遍得到的也是一样的。两者最多在末尾几位数字上有出入，不保证逐位相同。第 01 课会说明原因。
#
# </details>
# <details><summary>为什么不一次猜好几个 token？</summary>
#
# 每个 token 都取决于前一个，所以模型得先知道前一个是什么。确实有办法先往前猜，再用一轮前向验证猜得对不对。但每个 token 还是都要验证。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A model maps a sequence of tokens to scores for the next one. A loop around it writes text.
# - Rerunning the sequence for every token is waste. Keeping K and V removes it, and costs memory.
# - Prefill runs the prompt once. Decode runs one token per pass.
#
# | term | Chinese | what it is |
# |---|---|---|
# | token | token（词元） | a piece of text with a number |
# | logits | logits（未归一化分数） | one score for each token that could come next |
# | prefill | 预填充 | the pass over the whole prompt |
# | decode | 解码 | one pass per new token |
# | KV cache | KV Cache（KV 缓存） | the kept keys and values of all tokens so far |
#
# **Open exercises.** *Easy:* make your loop print each piece as it comes. *Medium:* draw the next token at random, by
# its probability, instead of taking the best. *Research:* when would you throw part of the cache away?
#
# **Next:** [01 · A KV cache in NumPy](lessons/01_numpy_kv_cache.ipynb). You build the cache, and the engine runs on it.

# %% [markdown] lang="zh" en="76a2d8f1"
# ## 三句话总结
#
# - 模型把一串 token 变成下一个 token 的分数。外面套一个循环，就能写出文字。
# - 每写一个 token 就把整个序列重跑一遍，这是浪费。留下 K 和 V 就能省掉这部分，代价是内存。
# - 预填充把提示词跑一遍。解码每轮跑一个 token。
#
# | 术语 | 英文 | 含义 |
# |---|---|---|
# | token（词元） | token | 带编号的一小段文本 |
# | logits（未归一化分数） | logits | 每个可能接在后面的 token 都有一个分数 |
# | 预填充 | prefill | 跑完整个提示词的那一轮前向 |
# | 解码 | decode | 每个新 token 一轮前向 |
# | KV Cache（KV 缓存） | KV cache | 到目前为止所有 token 留下的键和值 |
#
# **开放练习。** *简单*：让你的循环每得到一段就立刻打印出来。*中等*：不再总取最好的那个，而是按概率随机抽取下一个 token。*研究*：什么时候你会丢掉一部分缓存？
#
# **下一课：** [01 · 用 NumPy 写 KV Cache](lessons/01_numpy_kv_cache.ipynb)。缓存由你来写，引擎就在它上面运行。
