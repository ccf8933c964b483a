# %% [markdown] lang="en" tags=["goals"]
# # 13 · Chunked prefill
#
# **A long prompt comes in pieces, and everybody else goes on reading.**
#
# 90 to 120 minutes · plain Python, no GPU · after lessons 03, 07 and 09; 12 helps
#
# After this lesson you can
#
# - say for how long a long prompt stops every stream, and cut it so that it does not;
# - write the scheduler's `chunk_size` and run the engine on it, with the same text for every budget;
# - choose a token budget for a limit on the gap between two tokens, and say what it costs.

# %% [markdown] lang="zh" en="cea28125"
# # 13 · 分块预填充
#
# **长提示词分几次算，别人照样往下读。**
#
# 90 到 120 分钟 · 纯 Python，不需要 GPU · 先学第 03、07、09 课；学过第 12 课更好
#
# 学完这一课，你能够：
#
# - 算出一个长提示词会让所有人停多久，并把它切开，让谁也不用停；
# - 写出调度器的 `chunk_size`，让引擎用它运行：预算多大，文本都一样；
# - 给定相邻两个 token 的间隔上限，选出 token 预算，并说清代价。

# %%
import time

import numpy as np

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.backends import AuditBackend
from mini_engine.backends.step_cost import StepCost
from mini_engine.course import bugs_caught, check, panel, picture, predict
from mini_engine.course.chunk_requests import right_answer
from mini_engine.course.long_prompt import (
    LONG,
    eight_prompts,
    last_step_seconds,
    prompt_flops,
    prompt_seconds,
    serve_readers,
    waits,
)
from mini_engine.course.own_chunks import MaskedBackend, chunked_logits
from mini_engine.course.panels import p13_chunked_prefill as pictures
from mini_engine.course.timeline import draw, timeline
from mini_engine.geometry import kv_bytes_per_token
from mini_engine.models import load_model
from mini_engine.roofline.measure import one_thread
from mini_engine.scheduling import Chunk, Scheduler
from mini_engine.simulator import Efficiency

# %% [markdown] lang="en"
# ## The pain
#
# Eight people read answers as they are written. Then somebody sends a prompt of 32,768 tokens: a report, say, and "sum this
# up". Lesson 12's scheduler lets it join in the next step, whole. The step ends when all of it is computed. Until then
# nobody gets a token.
#
# How long is that? "Some hundreds of milliseconds", many will say. Guess:

# %% [markdown] lang="zh" en="a14e7c49"
# ## 痛点
#
# 八个人正在看回答一个字一个字地出来。这时有人发来一个长达 32,768 个 token 的提示词，比如一份报告，外加一句“帮我总结一下”。第 12 课的调度器在下一步就让它加入，而且一次算完整个提示词。全部算完，这一步才结束；在那之前，谁也拿不到 token。
#
# 要等多久？很多人会说“几百毫秒吧”。猜一猜：模型有 8.03e9 个参数、32 层、32 个头，每个头 128 维；用一块 H100，跑到峰值 989e12 FLOP/s 的一半。一步算完 32,768 个 token 的整个提示词，需要多少秒？

# %%
predict("13.stall", value=None)

# %% tags=["claim-stall", "claim-spike"]
for model, gpus in (("llama-3.1-8b", 1), ("llama-3.1-70b", 8)):
    for length in (8192, LONG):
        seconds = prompt_seconds(model, gpus, length)
        flops = prompt_flops(get_model(model), length)
        print(f"{model:<14}{gpus} H100  {length:6,} tokens: {flops:.3g} FLOPs, {seconds:.2f} s at half the peak")
of, whole = Efficiency(), serve_readers(budget=None)
print(
    f"simulator: {of.flops:.0%} of peak FLOP/s, {of.bandwidth:.0%} of bandwidth, {1000 * of.step_overhead:.0f} ms a step"
)
print(f"70B simulated: longest gap {waits(whole)[0]:.3f} s; formula {prompt_seconds('llama-3.1-70b', 8, LONG):.3f} s")
picture(pictures.stall)

# %% [markdown] lang="en"
# Seconds: 1.63 s on one H100, and 1.52 s for the 70B model on eight. "Hundreds of milliseconds" is true of 8,192 tokens.
# (Llama-3.1 has the shape of Llama-3 and takes longer prompts.)
#
# The picture is the simulator's: 70B, tensor parallel over eight H100, half of the peak FLOP/s, 80% of the bandwidth, 2 ms for
# each step. It shows one reader's gaps between tokens, or **ITL** (inter-token latency). 1.492 s is a little less than the
# formula, which multiplies every token by all parameters. An engine looks embeddings up, and computes the output head for the
# last token alone.
#
# And measured, here and now, by the CPU's own clock: the small model, eight readers, a prompt of 2,000 tokens.

# %% [markdown] lang="zh" en="913d376a"
# 答案以秒计：一块 H100 要 1.63 s；70B 模型用八块 H100 要 1.52 s。“几百毫秒”只对 8,192 个 token 成立。（Llama-3.1 的结构和 Llama-3 相同，只是能接受更长的提示词。）
#
# 图来自模拟器：70B 模型，在八块 H100 上张量并行，FLOP/s 取峰值的一半，带宽取 80%，每步另加 2 ms。图里是一位读者相邻两个 token 之间的间隔，也就是 **token 间延迟**（inter-token latency，**ITL**）。1.492 s 比公式稍小：公式让每个 token 都乘一遍所有参数；而在引擎里，嵌入只是查表，输出层只给最后一个 token 算。
#
# 再当场实测一次，计的是 CPU 时间：小模型，八位读者，一个 2,000 个 token 的提示词。

# %% tags=["claim-measured", "nbval-ignore-output"]
GREEDY = {"temperature": 0, "ignore_eos": True}


def measure(budget):
    """(longest ms between two tokens of the readers, ms to the long prompt's first token), CPU time"""
    engine = LLM("tiny-gqa", max_num_batched_tokens=budget, enable_prefix_caching=False, num_blocks=400).engine
    for number in range(8):
        engine.add_request(f"reader {number}", range(5 + number, 25), SamplingParams(max_tokens=60, **GREEDY))
    came, longest, first = 0.0, 0.0, None
    for step in range(60):
        if step == 20:
            came = time.thread_time()
            engine.add_request("long", [1 + 31 * i % 2000 for i in range(2000)], SamplingParams(max_tokens=2, **GREEDY))
        begin = time.thread_time()
        outputs = engine.step()
        longest = max(longest, time.thread_time() - begin) if step else 0.0
        if first is None and any(output.request_id == "long" for output in outputs):
            first = time.thread_time() - came
    return longest * 1000, (first or float("nan")) * 1000


for words, budget in (("whole", 4096), ("in chunks, 128 tokens a step", 128)):
    with one_thread():
        gap, ttft = measure(budget)
    print(f"{words:<30}longest gap {gap:4.0f} ms, the prompt's first token {ttft:4.0f} ms")

# %% [markdown] lang="en"
# The second line is what you will build. Your times will differ. Here the readers wait about a tenth as long, and the prompt
# itself a little longer.
#
# ## A piece of a prompt
#
# A step may compute any piece: a **chunk**. Tokens before it have their K and V in the cache. A chunk that starts after
# `done` tokens is like the whole prompt, except for one thing: which keys may its rows see?
#
# ## Exercise 13.1 - the mask of a chunk
#
# Difficulty 2/5 · importance 4/5 · 10 minutes · about 2 lines
#
# Write `chunk_mask(done, num_new)`: a NumPy array of bool, `[num_new, done + num_new]`. Entry `[t, s]` says whether row t of
# the chunk sees token s of the prompt.
#
# - Row t is token `done + t`. It sees every token before it, and itself.
# - A decode is a chunk of one.
#
# Small case, `chunk_mask(2, 2)`: rows `1 1 1 0` and `1 1 1 1`.

# %% [markdown] lang="zh" en="6f372f38"
# 第二行就是你要做出来的效果。你测到的时间会不一样；我们这里，读者等的时间只有原来的十分之一左右，长提示词自己多等一点。
#
# ## 提示词的一段
#
# 一步不必算完整个提示词，只算其中任意一段也行。这样的一段叫一个 **chunk**（这里不译成“分块”，免得和块表里的“块”混淆）。它前面的 token，K 和 V 已经在缓存里了。前面算完 `done` 个 token 之后，chunk 的算法和整个提示词一样，只有一点要另外考虑：它的每一行能看见哪些键？
#
# ## 练习 13.1 - chunk 的掩码
#
# 难度 2/5 · 重要性 4/5 · 10 分钟 · 大约 2 行
#
# 写出 `chunk_mask(done, num_new)`：返回一个 bool 类型的 NumPy 数组，形状是 `[num_new, done + num_new]`。元素 `[t, s]` 表示 chunk 的第 t 行能不能看见提示词的 token s。
#
# - 第 t 行是 token `done + t`。它能看见前面所有的 token，还有它自己。
# - 解码就是只有一个 token 的 chunk。
#
# 小例子：`chunk_mask(2, 2)` 的两行是 `1 1 1 0` 和 `1 1 1 1`。


# %% exercise="chunk_mask"
def chunk_mask(done, num_new):
    """bool[num_new, done + num_new]: which tokens each row of the chunk sees."""
    ### BEGIN SOLUTION
    return np.arange(done + num_new) <= done + np.arange(num_new)[:, None]
    ### END SOLUTION


# %% test="chunk_mask" points=1
chunk_mask = check("13.mask", chunk_mask)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Compare two ranges: the numbers of the keys along a row, and the numbers of the rows down a column.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Keys are `np.arange(done + num_new)`. Rows are `done + np.arange(num_new)`, with `[:, None]` to stand upright. A row sees
# the keys that are not larger.
#
# </details>
# <details><summary>Hint 3: "a later chunk sees all before it" fails</summary>
#
# A triangle of the chunk alone is too narrow: the first `done` columns are the prefix, and all rows see them.
#
# </details>
#
# Your mask in the real model. A prompt of 40 tokens, cut at every place, inside a block of 16 too. Then in the engine:

# %% [markdown] lang="zh" en="58a5bc0b"
# <details><summary>提示 1：从哪里入手</summary>
#
# 比较两串编号：键的编号沿着一行排开，行的编号沿着一列排开。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 键的编号是 `np.arange(done + num_new)`。行的编号是 `done + np.arange(num_new)`，用 `[:, None]` 把它竖起来。每一行能看见编号不大于自己的键。
#
# </details>
# <details><summary>提示 3：“a later chunk sees all before it”这一项不通过</summary>
#
# 只有 chunk 自己的那个三角形，太窄了：前 `done` 列是前缀，每一行都能看见。
#
# </details>
#
# 把你的掩码用到真正的模型里：一个 40 个 token 的提示词，每个位置都切一次试试；块有 16 个槽位，切在块中间也算。然后放进引擎：

# %% tags=["claim-logits"]
tiny = load_model("tiny-gqa", backend="numpy").model
prompt = [(37 * i + 11) % 2000 + 1 for i in range(40)]
in_one = chunked_logits(tiny, prompt, (), chunk_mask)
worst = max(np.abs(chunked_logits(tiny, prompt, (cut,), chunk_mask) - in_one).max() for cut in range(1, 40))
print(f"39 cuts: logits differ by less than 1e-10 from the whole run: {worst < 1e-10}")
print(f"the largest logit is {np.abs(in_one).max():.1f}")
told = set()
for budget in (1, 5, 16, 17, 64):
    config = EngineConfig(num_blocks=8, block_size=16, max_num_batched_tokens=budget)
    engine = LLMEngine(config, MaskedBackend(tiny, chunk_mask))
    engine.add_request("a", prompt, SamplingParams(max_tokens=6, **GREEDY))
    while engine.has_unfinished_requests():
        outputs = engine.step()
    told.add(tuple(outputs[-1].outputs[0].token_ids))
print(f"budgets 1, 5, 16, 17, 64: {len(told)} answer")
assert worst < 1e-10
assert len(told) == 1

# %% [markdown] lang="en"
# The same up to rounding, wherever you cut. A chunk that attends to itself alone raises no error: its text is just wrong.
#
# ## What it costs: computing
#
# "Chunking costs 6% more attention work", you may read
# ([an example](https://dev.to/ji_ai/chunked-prefill-why-one-long-prompt-stalls-every-decode-ln0)). Is that so?

# %% [markdown] lang="zh" en="421d13e0"
# 不管在哪里切，除了舍入误差，结果都一样。要是 chunk 只看自己，什么错也不会报，只是文本不对。
#
# ## 代价之一：计算
#
# 你可能读到过“分块预填充会让注意力的计算量多 6%”（[一个例子](https://dev.to/ji_ai/chunked-prefill-why-one-long-prompt-stalls-every-decode-ln0)）。真的吗？
#
# 32,768 个 token 的提示词分成 16 个 chunk，每个 2,048 个 token。注意力（有因果掩码）和其余部分合起来，FLOP 数增加百分之几？

# %%
predict("13.flops", value=None)

# %% tags=["claim-flops"]
spec = get_model("llama-3.1-70b")
runs = {chunk: serve_readers(chunk, readers=0) for chunk in (None, 8192, 2048, 512)}
for chunk, run in runs.items():
    size = chunk or LONG
    formula = sum(prompt_flops(spec, min(size, LONG - done), done) for done in range(0, LONG, size))
    print(f"chunks of {size:6,}: formula {formula:,}  counted {run.usage.flops:,}")
    assert formula == prompt_flops(spec, LONG)
    assert run.usage.flops == runs[None].usage.flops

# %% [markdown] lang="en"
# Exactly the same, to the last FLOP. (The counter is the simulator's: no FLOPs for embeddings, one row of logits, and an answer
# of 20 tokens.) Each token sees what it saw before. The 6% are a kernel's that computes scores under the mask and throws them away. On a whole
# prompt such a kernel wastes more.
#
# ## What it costs: reading
#
# But each chunk reads the K and V of all tokens before it, again.

# %% [markdown] lang="zh" en="23e16248"
# 完全一样，一个 FLOP 也不差。（计数来自模拟器：嵌入不算 FLOP，logits 只算一行，另外包含一个 20 个 token 的回答。）每个 token 看见的，还是原来那些 token。那 6% 来自某一类 kernel：被掩码遮住的分数它也算，算完再丢掉。这样的 kernel 去算一整个提示词，浪费得更多。
#
# ## 代价之二：读取
#
# 不过，每个 chunk 都要把前面所有 token 的 K 和 V 再读一遍。还是这 16 个 chunk，每个 2,048 个 token：这样一共要读多少个 token？

# %%
predict("13.rereads", value=None)

# %% [markdown] lang="en"
# ## Exercise 13.2 - what is read again
#
# Difficulty 2/5 · importance 3/5 · 10 minutes · about 2 lines
#
# Write `reread_tokens(num_tokens, chunk)`: a prompt is computed alone, in chunks of `chunk` tokens, the last one perhaps
# shorter. A chunk that starts at token i reads the K and V of i earlier tokens. Return the sum, as an int.
#
# - No loop of your own: the check asks for millions of chunks.
# - Exact: integers only.
#
# Small case: 10 tokens in chunks of 4 start at 0, 4 and 8, so the answer is 12.

# %% [markdown] lang="zh" en="f52ab525"
# ## 练习 13.2 - 重复读了多少
#
# 难度 2/5 · 重要性 3/5 · 10 分钟 · 大约 2 行
#
# 写出 `reread_tokens(num_tokens, chunk)`。只算一个提示词，每个 chunk 有 `chunk` 个 token，最后一个可能短一些。从 token i 开始的 chunk，要读前面 i 个 token 的 K 和 V。返回总和，类型是 int。
#
# - 不要自己写循环：检查会用到几百万个 chunk。
# - 要精确：只用整数。
#
# 小例子：10 个 token，每个 chunk 4 个，起点是 0、4、8，所以答案是 12。


# %% exercise="reread_tokens"
def reread_tokens(num_tokens, chunk):
    """Tokens whose K and V are read by chunks after their own."""
    ### BEGIN SOLUTION
    num_chunks = -(-num_tokens // chunk)
    return chunk * num_chunks * (num_chunks - 1) // 2
    ### END SOLUTION


# %% test="reread_tokens" points=1
reread_tokens = check("13.rereads", reread_tokens)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The starts are 0, chunk, 2 chunk, ... How many are there, and what is 0 + 1 + ... + (n - 1)?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# The number of chunks n is `num_tokens / chunk` rounded up: `-(-num_tokens // chunk)`. The sum is `chunk` times
# `n * (n - 1) // 2`.
#
# </details>
# <details><summary>Hint 3: "exact and fast for large numbers" fails</summary>
#
# `/` makes a float, and `math.ceil` comes too late. Divide by 2 with `//`.
#
# </details>
#
# Three ways to the same number: your formula, the bytes that the simulator counts, and the plan that it recorded.

# %% [markdown] lang="zh" en="e2de8bad"
# <details><summary>提示 1：从哪里入手</summary>
#
# 起点是 0、chunk、2 chunk……一共有几个？0 + 1 + ... + (n - 1) 又等于多少？
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# chunk 的个数 n 等于 `num_tokens / chunk` 向上取整：`-(-num_tokens // chunk)`。总和是 `chunk` 乘以 `n * (n - 1) // 2`。
#
# </details>
# <details><summary>提示 3：“exact and fast for large numbers”这一项不通过</summary>
#
# `/` 得到的是浮点数，这时再用 `math.ceil` 已经晚了。除以 2 也要用 `//`。
#
# </details>
#
# 同一个数，用三种方法得到：你的公式、模拟器统计的字节数，以及它记录下来的计划。

# %% tags=["claim-three-ways"]
cost = StepCost(spec, get_gpu("h100-sxm"), tp=8)
kv_bytes = kv_bytes_per_token(spec, "bf16")
starts = [chunk.start for step in runs[2048].steps for chunk in step.chunks if chunk.num_tokens > 1]
weights = cost.work([Chunk("", 0, 0, 2048)], 1).bytes - 2048 * cost.kv_bytes_per_token
extra = runs[2048].usage.bytes_read - runs[None].usage.bytes_read - (len(starts) - 1) * weights
formula, counter = reread_tokens(LONG, 2048) * kv_bytes, round(8 * extra)
shown = picture(pictures.rereads, starts=starts, kv_bytes=kv_bytes)
print(f"formula: {reread_tokens(LONG, 2048):,} tokens x {kv_bytes:,} B = {formula / 1e9:.1f} GB")
print(f"counter: {counter / 1e9:.1f} GB on eight GPUs, besides reading the weights 15 times more")
print(f"picture: {shown.text}")
bandwidth = float(of.bandwidth * get_gpu("h100-sxm").memory_bandwidth)  # the simulator's 80%
print(
    f"time: {1000 * formula / (8 * bandwidth):.1f} ms for K and V, {15 * 1000 * weights / bandwidth:.0f} ms for weights"
)
assert formula == counter
assert shown.text.endswith(f"{formula / 1e9:.1f} GB")
shown

# %% [markdown] lang="en"
# 245,760 tokens, 80.5 GB. It sounds like a lot. At 80% of the bandwidth, eight GPUs read that in 3.8 ms, of 1.52 s. The weights,
# read 15 times more, are 97 ms. And both hide behind computing, as long as a chunk is compute bound (lesson 03). Below that, they show: soon.
#
# ## Riding along
#
# So a prompt may come in chunks. All share one **token budget** a step, `max_num_batched_tokens`: readers take one token each, and
# the prompt the rest. Sarathi-Serve calls it **stall-free batching**.
#
# In letters: two readers, r and s, and a prompt of 40 tokens, whole or with 12 tokens a step. In the picture: three readers
# and our prompt on the simulated machine, drawn to scale in time. A thin grey bar is the wait for a step to end.

# %% [markdown] lang="zh" en="8db6add9"
# 245,760 个 token，80.5 GB，听起来很多。但按带宽的 80% 算，八块 GPU 读完只要 3.8 ms，而整个提示词要算 1.52 s。权重多读 15 遍，要 97 ms。只要 chunk 还是计算受限（第 03 课），这两样都藏在计算后面。chunk 再小，它们就会露出来，后面会看到。
#
# ## 搭车
#
# 所以提示词可以切成 chunk 来算。每一步有一个大家共用的 **token 预算**：`max_num_batched_tokens`。读者每人一个 token，剩下的都给提示词。Sarathi-Serve 把这叫做**无停顿批处理**（stall-free batching）。
#
# 先用字母画出来：两位读者 r 和 s，一个 40 个 token 的提示词，要么整个算，要么每步 12 个 token。再看图：三位读者和我们的长提示词，跑在模拟的机器上，横轴按时间比例画。细的灰条表示在等当前这一步结束。


# %% tags=["diagram", "claim-ride-along"]
def ride(budget, scheduler=Scheduler, **options):
    config = EngineConfig(num_blocks=64, block_size=4, max_num_batched_tokens=budget, **options)
    engine = LLMEngine(config, AuditBackend(), scheduler=scheduler, record=True)
    for name in "rs":
        engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=11, **GREEDY))
    for step in range(40):
        if step == 3:
            engine.add_request("long", range(40), SamplingParams(max_tokens=4, **GREEDY), priority=-1)
        engine.step()
    return engine


print(f"whole\n{timeline(ride(64))}\n\n12 tokens a step\n{timeline(ride(12))}")
lines = {
    words: timeline(serve_readers(budget, readers=3, answer=30, arrival=0.1))
    for words, budget in (("whole", None), ("2,048 tokens a step", 2048))
}
for line in lines.values():
    line.rows = dict(zip(("reader 1", "reader 2", "reader 3", "prompt"), line.rows.values()))
picture(lambda figure: draw(figure, lines, x="seconds"), width=7.2, height=4.2)

# %% [markdown] lang="en"
# Counted in steps, whole is shorter. But its step 3 has 42 tokens. In the picture such a step is one long bar: each reader
# gets one token in all that time. In chunks, each white line is a token, and they go on.
#
# Of 12 tokens the prompt gets 10, since two are owed to the readers. Here they were served first anyway. They are not always
# first: a prompt with priority, or one that was preempted, stands in front of them. What if it takes what it can?

# %% [markdown] lang="zh" en="66ad6dc0"
# 按步数算，整个算更短，可是它的第 3 步有 42 个 token。在图里，这样的一步是一根长条：这么久的时间里，每位读者只拿到一个 token。切成 chunk 以后，每条白线是一个 token，读者一直在往下读。
#
# 12 个 token 里，提示词拿到 10 个，因为另外两个要留给读者。在这里，读者本来就排在前面。但他们并不总是排在前面：优先级高的提示词，或者刚被抢占过的提示词，会排到他们前面。要是它能拿多少就拿多少呢？


# %% tags=["claim-starved"]
class Greedy(Scheduler):
    def chunk_size(self, num_missing, budget, num_behind):
        return min(num_missing, budget)


for kind in (Greedy, Scheduler):
    print(f"{kind.__name__}, the prompt in front\n{timeline(ride(12, kind, policy='priority'))}\n")

# %% [markdown] lang="en"
# Greedy chunks stop both readers (`-`) until the prompt is through: with a budget, and still a stall.
#
# ## Exercise 13.3 - the size of a chunk
#
# Difficulty 2/5 · importance 5/5 · 15 minutes · about 1 line
#
# Write `chunk_size(self, num_missing, budget, num_behind)`, a method of the engine's scheduler. It is asked for each running
# sequence in turn, and for each one that starts.
#
# - `num_missing`: tokens of this sequence without K and V, 1 or more. A decode misses one.
# - `budget`: tokens that this step has left, 1 or more.
# - `num_behind`: running sequences that are served after this one. Each is owed one token. For one that starts it is 0.
# - Return how many tokens to compute now: at least 1, at most what is missing and what is left. Take all that nobody is owed.
#
# Small case: 40 are missing, 12 are left, 2 are behind: 10. With 20 behind: 1.

# %% [markdown] lang="zh" en="82710aa2"
# 贪心的 chunk 让两位读者都停下来（`-`），直到提示词算完。明明有预算，还是停顿了。
#
# ## 练习 13.3 - chunk 的大小
#
# 难度 2/5 · 重要性 5/5 · 15 分钟 · 大约 1 行
#
# 写出 `chunk_size(self, num_missing, budget, num_behind)`，它是引擎调度器的一个方法。调度器依次为每个正在运行的序列调用它，为每个刚要开始的序列也调用一次。
#
# - `num_missing`：这个序列还有多少个 token 没有 K 和 V，至少是 1。解码时缺一个。
# - `budget`：这一步还剩多少个 token，至少是 1。
# - `num_behind`：正在运行的序列里，有几个排在它后面。要给它们各留一个 token。对刚要开始的序列，它是 0。
# - 返回现在算多少个 token：至少 1 个，不能超过缺的，也不能超过剩下的。凡是不用留给别人的，全部拿走。
#
# 小例子：缺 40 个，剩 12 个，后面有 2 个序列，答案是 10。后面有 20 个序列，答案是 1。


# %% exercise="MyScheduler"
class MyScheduler(Scheduler):
    def chunk_size(self, num_missing, budget, num_behind):
        """How many of a sequence's missing tokens this step computes."""
        ### BEGIN SOLUTION
        return min(num_missing, max(1, budget - num_behind))
        ### END SOLUTION


# %% test="MyScheduler" points=2
MyScheduler = check("13.chunk_size", MyScheduler)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# What is left when each of those behind has its token?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `budget - num_behind`, but never below 1. Of that no more than `num_missing`.
#
# </details>
# <details><summary>Hint 3: "at least a token" fails</summary>
#
# More may be behind than the budget has tokens. Whoever is in front still gets one, or no step would ever get anywhere.
#
# </details>
#
# Your scheduler in the engine, on the real model, and in the simulator:

# %% [markdown] lang="zh" en="cb38a1e6"
# <details><summary>提示 1：从哪里入手</summary>
#
# 后面每个序列都拿到一个 token 之后，还剩多少？
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# `budget - num_behind`，但不小于 1。再和 `num_missing` 比，取小的。
#
# </details>
# <details><summary>提示 3：“at least a token”这一项不通过</summary>
#
# 后面的序列可能比预算里的 token 还多。排在前面的仍然要拿一个，不然永远没有进展。
#
# </details>
#
# 把你的调度器放进引擎，先用真正的模型，再用模拟器：


# %% tags=["claim-own-scheduler"]
def texts(budget):
    """What tiny-gqa answers: eight short prompts and a long one, with your scheduler."""
    llm = LLM(
        "tiny-gqa", scheduler=MyScheduler, max_num_batched_tokens=budget, enable_prefix_caching=False, num_blocks=200
    )
    asked = [list(range(5 + i, 25)) for i in range(8)] + [[1 + 31 * i % 2000 for i in range(300)]]
    answers = llm.generate(asked, SamplingParams(max_tokens=8, **GREEDY), progress=False)
    return [list(answer.outputs[0].token_ids) for answer in answers]


budgets = (16, 33, 128, 1024)
assert all(texts(budget) == texts(1024) for budget in budgets)
print(f"tiny-gqa, nine prompts, budgets {', '.join(f'{budget:,}' for budget in budgets)}: the same text")
yours = serve_readers(2048, scheduler=MyScheduler)
assert waits(yours) == waits(serve_readers(2048))
print(f"simulated, budget 2,048: longest gap {1000 * waits(yours)[0]:.1f} ms in place of {1000 * waits(whole)[0]:,.0f}")

# %% [markdown] lang="en"
# ## Which budget?
#
# A step of 2,048 prompt tokens takes 74 ms by the formula. Is that the readers' longest gap?

# %% [markdown] lang="zh" en="983cb39b"
# ## 选多大的预算？
#
# 按公式，一步算 2,048 个提示词 token 要 74 ms。这就是读者最长的间隔吗？
#
# 猜一猜：还是图里那个模型，八块 H100 都跑到峰值的一半。以毫秒计，开头的 2,048 个 token 要 74，整个提示词的 32,768 个要 1,525。最后的 2,048 个要多少？

# %%
predict("13.last_chunk", value=None)

# %% tags=["claim-budgets"]
first, last = (prompt_seconds("llama-3.1-70b", 8, 2048, done) for done in (0, LONG - 2048))
print(f"2,048 tokens: {1000 * first:.0f} ms at the front, {1000 * last:.0f} ms at the end")
print("budget  longest gap  first token  steps until then")
for budget in (512, 2048, 8192, None):
    run = serve_readers(budget, scheduler=MyScheduler)
    gap, ttft = waits(run)
    steps = sum(any(chunk.num_tokens > 1 and chunk.request_id == "8" for chunk in step.chunks) for step in run.steps)
    print(f"{f'{budget:,}' if budget else 'whole':>6}{1000 * gap:10,.0f} ms{ttft:11.2f} s{steps:12}")

# %% [markdown] lang="en"
# The budget counts tokens, not time. The last chunk attends to all before it, so it takes 116 ms where the first took
# 74 ms.
#
# With 512 the readers hardly notice, 31 ms. The long prompt pays with its **TTFT**, the time to its first token: 1.65 s in place of
# 1.49 s. With 8,192 people see the gaps, 441 ms, and the prompt is hardly faster.
#
# So a small budget is good for ITL, a large one for TTFT. Move the budget. The still picture below the panel shows 256: gaps of
# 16.2 ms at most, and the first token after 1.80 s.

# %% [markdown] lang="zh" en="d16ffce3"
# 预算数的是 token，不是时间。最后一个 chunk 要对前面所有的 token 做注意力，所以要 116 ms，而第一个只要 74 ms。
#
# 预算是 512 时，间隔 31 ms，读者几乎没感觉。代价由长提示词自己承担：它的**首 token 延迟**（**TTFT**）从 1.49 s 变成 1.65 s。预算是 8,192 时，间隔 441 ms，人看得出来；提示词却没再快多少。
#
# 所以小预算对 ITL 好，大预算对 TTFT 好。拖动预算看看。面板下面的静态图是预算为 256 的情形：间隔最长 16.2 ms，首 token 要等 1.80 s。

# %%
panel(
    pictures.trade_off,
    budget={2048: [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]},
    prompt={LONG: [8192, 16384, LONG, 65536]},
    width=7.2,
)

# %%
picture(pictures.trade_off, budget=256, prompt=LONG, width=7.2)

# %% [markdown] lang="en"
# ## Exercise 13.4 - the largest budget
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 8 lines
#
# "No gap above 50 ms", says the service. Write `largest_budget(step_seconds, limit, most)`.
#
# - `step_seconds(n)`: seconds of a step of n tokens, for n from 1 to `most`. More tokens never take less time. Two budgets
#   may take equally long.
# - Return the largest n from 1 to `most` whose step takes at most `limit`; 0 if there is none.
# - Call `step_seconds` at most 60 times. `most` goes up to `2**50`.
#
# Small case: n tokens take 2 + n seconds. With a limit of 5 the answer is 3.

# %% [markdown] lang="zh" en="0ad22e04"
# ## 练习 13.4 - 最大的预算
#
# 难度 3/5 · 重要性 4/5 · 15 分钟 · 大约 8 行
#
# 这项服务要求“间隔不能超过 50 ms”。写出 `largest_budget(step_seconds, limit, most)`。
#
# - `step_seconds(n)`：一步算 n 个 token 要多少秒，n 从 1 到 `most`。token 更多，时间绝不会更短；两个预算的时间可能一样长。
# - 返回 1 到 `most` 之间最大的 n，它那一步的时间不超过 `limit`；一个也没有就返回 0。
# - `step_seconds` 最多调用 60 次，而 `most` 可以大到 `2**50`。
#
# 小例子：n 个 token 要 2 + n 秒。上限是 5 时，答案是 3。


# %% exercise="largest_budget"
def largest_budget(step_seconds, limit, most):
    """The largest number of tokens whose step holds the limit."""
    ### BEGIN SOLUTION
    low, high = 0, most + 1  # low holds the limit, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if step_seconds(middle) <= limit:
            low = middle
        else:
            high = middle
    return low
    ### END SOLUTION


# %% test="largest_budget" points=2
largest_budget = check("13.budget", largest_budget)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Time never falls, so this is a search in a sorted list: halve the range at every call.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Keep `low`, which holds the limit, and `high`, which does not. Start with 0 and `most + 1`, and never call with those. Ask
# for the middle, move one of them, stop when they are neighbours.
#
# </details>
# <details><summary>Hint 3: "the answer is most" fails</summary>
#
# If `high` starts at `most`, then `most` itself is never tried.
#
# </details>
#
# The costliest step is the last one of the prompt. `last_step_seconds(n)` gives its time. The first eight tokens are the
# readers'; from the ninth on they are a chunk that ends the prompt.

# %% [markdown] lang="zh" en="f69fd926"
# <details><summary>提示 1：从哪里入手</summary>
#
# n 变大，时间绝不会变短，所以这就是在有序的列表里查找：每调用一次，范围缩小一半。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 维护两个数：`low` 不超过上限，`high` 超过。从 0 和 `most + 1` 开始，但绝不用这两个数去调用。每次试中间那个，移动其中一个，直到两者相邻。
#
# </details>
# <details><summary>提示 3：“the answer is most”这一项不通过</summary>
#
# 如果 `high` 从 `most` 开始，`most` 本身就永远试不到。
#
# </details>
#
# 最费时的是提示词的最后一步。`last_step_seconds(n)` 给出它的时间：n 个 token 里，前八个属于八位读者，从第九个起，是提示词末尾的那个 chunk。

# %% tags=["claim-limit"]
for limit in (0.02, 0.05, 0.1):
    budget = largest_budget(last_step_seconds, limit, LONG)
    gap, ttft = waits(serve_readers(budget, scheduler=MyScheduler))
    print(
        f"limit {1000 * limit:3.0f} ms: budget {budget:5,}, simulated gap {1000 * gap:5.1f} ms, first token {ttft:.2f} s"
    )
    assert gap <= limit
shown = ", ".join(f"{n}: {1000 * last_step_seconds(n):.2f}" for n in (1, 8, 9, 128, 256, 512))
print(f"tokens and ms of a step: {shown}")
flat = largest_budget(last_step_seconds, 1.01 * last_step_seconds(64), 2048)
print(f"from 9 to {flat} tokens the same within 1%: as long as the weights are read")

# %% [markdown] lang="en"
# There is a floor. A step of one token reads all weights, and has its own 2 ms: 8.5 ms. The ninth token is the prompt's. With
# it the K and V of the long prompt are read, which makes 9.05 ms. Up to 129 tokens the rest is almost free. From there on
# computing takes over, and time grows with tokens.
#
# A budget does one thing more: it bounds **activations**. They grow with the tokens of a step, and an engine must keep room for
# the largest step it may ever run. That room is not there for the cache:

# %% [markdown] lang="zh" en="c39e1538"
# 时间有个下限。只有一个 token 的一步也要读全部权重，再加上每步固定的 2 ms：一共 8.5 ms。第九个 token 是提示词的：有了它，还要读长提示词的 K 和 V，于是变成 9.05 ms。从这里到 129 个 token，多出来的几乎都是白送。再往上就轮到计算说了算，时间随 token 数增长。
#
# 预算还管着另一件事：它限制了**激活值**（activations）占多少内存。激活值随一步里的 token 数增长，引擎必须为可能出现的最大一步留好空间。这块空间，缓存就用不上了：

# %% tags=["claim-activations"]
small = get_model("llama-3.1-8b")
for tokens in (2048, 8192, LONG):
    held = 2 * tokens * 2 * small.intermediate_size  # the two halves of one MLP, bf16
    print(f"{tokens:6,} tokens: {held / 1e9:.2f} GB for one MLP of the 8B model", end="")
    print(f", the K/V of {held // kv_bytes_per_token(small, 'bf16'):,} tokens")

# %% [markdown] lang="en"
# ## When it loses
#
# Chunking is for those who wait beside the prompt. Nobody reads? Then there is nobody to protect.

# %% [markdown] lang="zh" en="8a0cf544"
# ## 什么时候反而吃亏
#
# 分块预填充照顾的，是陪着长提示词一起等的人。没有人在读，也就没有谁要照顾。

# %% tags=["claim-counter-example"]
print("the prompt alone: its first token after")
for budget in (None, 2048, 512, 128, 64):
    _, ttft = waits(serve_readers(budget, readers=0))
    print(f"{f'{budget:,}' if budget else 'whole':>6} {ttft:.2f} s, {ttft / waits(runs[None])[1]:.2f} times", end="")
    jobs = eight_prompts(budget)
    print(f"; eight prompts of 8,192, all done after {jobs.end:.2f} s")

# %% [markdown] lang="en" tags=["claim-sarathi"]
# - **Nobody reads**: 2,048 tokens a step make it 1.02 times as long, 64 tokens 3.00 times. First it is the 2 ms of each step.
#   Below 128 tokens or so it is the weights, read for so few.
# - **The long prompt itself** waits longer, whatever the budget.
# - **Eight long prompts**: in all they take as long as before, or longer. No order of work lifts a limit of computing.
# - **Short prompts**: below the budget nothing is cut, and nothing changes.
#
# ## What was published
#
# [Sarathi-Serve](https://arxiv.org/abs/2403.02310) reports more **capacity**: requests per second that hold a limit on latency.
# Each figure has a condition:
#
# - 2.6 times that of vLLM for `Mistral-7B`, on one A100;
# - up to 3.7 times for `Yi-34B`, on two A100;
# - up to 5.6 times for `Falcon-180B`, with **pipeline parallelism**. There chunks of equal size also fill the pipeline's bubbles,
#   which is a gain of another kind.
#
# Yours depends on how many read while long prompts come in, and on your limit.

# %% [markdown] lang="zh" en="77fa4e6b"
# - **没有读者**：每步 2,048 个 token，时间是原来的 1.02 倍；每步 64 个 token，是 3.00 倍。起先是因为每步固定的 2 ms；到了大约 128 个 token 以下，是因为权重：读一遍，只为这么几个 token。
# - **长提示词自己**：不管预算多大，它都要多等一会儿。
# - **八个长提示词**：总时间和原来一样，或者更长。调整先后顺序，突破不了算力的上限。
# - **短提示词**：不超过预算就不用切，什么也不变。
#
# ## 已发表的数字
#
# [Sarathi-Serve](https://arxiv.org/abs/2403.02310) 报告的是**服务容量**（capacity）的提升：在延迟不超过上限的前提下，每秒能处理多少请求。每个数字都有条件：
#
# - `Mistral-7B`，一块 A100：是 vLLM 的 2.6 倍；
# - `Yi-34B`，两块 A100：最多 3.7 倍；
# - `Falcon-180B`，用**流水线并行**（pipeline parallelism）：最多 5.6 倍。这时，大小相等的 chunk 还能填上流水线的气泡，那是另一种收益。
#
# 你能得到多少，取决于长提示词进来时有多少人在读，也取决于你的延迟上限。

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# ## Exercise 13.5 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 25 minutes · about 25 lines
#
# Write tests that a broken scheduler cannot pass. Your function is given `make`: `make(8)` is a run with a budget of 8, with
# blocks of 4. Raise AssertionError if it is broken. Nine broken schedulers wait, and four right ones.
#
# - Queue a request with `run.add("a", tokens, max_tokens, priority)`. `priority` is 0 if left out; the smallest is in front.
# - `run.step()` returns the chunks of one step: a list of `(name, first token, number of tokens)`. `run.finish()` returns all
#   steps that are left.
# - `run.answer("a")`: the tokens sampled so far. `right_answer(tokens, n)`: what they should be.
#
# What holds: a step keeps the budget, and is full while a prompt misses tokens. Each token is computed once, in order, unless it
# was found. (The prefix cache is on. A prompt starts behind the whole blocks that were computed before, and computes one token
# at least.) Whoever runs has a chunk in every step, as long as the budget has a token for each.
#
# Here is one of the nine: a chunk that ends before the prompt does gets a token too. `plan.chunks` are the step's chunks, `result`
# holds a sampled token for each, and `changed` are the requests that were due one:
#
# ```python
# def commit(self, plan, result):
#     changed = super().commit(plan, result)
#     for name, index, _, _ in plan.chunks:
#         request = self.requests.get((name, index))
#         if request is not None and request not in changed:
#             request.token_ids.append(result[request.key].token_id)
#     return changed
# ```

# %% [markdown] lang="zh" en="7ac15e4d"
# ## 练习 13.5 - 找出 bug
#
# 难度 4/5 · 重要性 4/5 · 25 分钟 · 大约 25 行
#
# 写一些测试，让坏的调度器过不了。你的函数会拿到 `make`：`make(8)` 是一次运行，预算是 8，每块 4 个槽位。如果它是坏的，就抛出 AssertionError。等着你的有九个坏的调度器，还有四个正确的。
#
# - 用 `run.add("a", tokens, max_tokens, priority)` 让一个请求排队。`priority` 可以不写，那就是 0；数最小的排在最前面。
# - `run.step()` 返回一步里的 chunk：一个列表，每项是 `(name, first token, number of tokens)`，即名字、第一个 token 的位置、token 数。`run.finish()` 返回剩下的所有步。
# - `run.answer("a")`：到目前为止采样出来的 token。`right_answer(tokens, n)`：应该是哪些 token。
#
# 应该成立的是：每一步都不超出预算；只要还有提示词没算完，就把预算用满。每个 token 按顺序恰好算一次，除非在缓存里找到了。（前缀缓存是开着的：以前算过的整块不用再算，提示词从它们后面开始，但至少要算一个 token。）只要预算够给每个正在运行的请求各分一个 token，它们在每一步里就都有 chunk。
#
# 下面是九个中的一个：chunk 还没到提示词末尾，也让它得到一个 token。`plan.chunks` 是这一步的 chunk，`result` 里给每个 chunk 都采样了一个 token，`changed` 是本来就该得到 token 的请求：
#
# ```python
# def commit(self, plan, result):
#     changed = super().commit(plan, result)
#     for name, index, _, _ in plan.chunks:
#         request = self.requests.get((name, index))
#         if request is not None and request not in changed:
#             request.token_ids.append(result[request.key].token_id)
#     return changed
# ```


# %% exercise="my_tests"
def my_tests(make):
    """Raise AssertionError if the runs made by make(budget) are broken."""
    ### BEGIN SOLUTION
    for length in (15, 16, 17):
        run = make(8)
        run.add("a", range(length), 3)
        steps = run.finish()
        assert run.answer("a") == right_answer(range(length), 3)
        assert steps[:2] == [[("a", 0, 8)], [("a", 8, min(8, length - 8))]]
        assert sum(n for step in steps for _, _, n in step) == length + 2
        assert all(n > 0 for step in steps for _, _, n in step)

    for priority in (0, -1):
        run = make(6)
        run.add("reader", [1, 2], 20)
        run.step()
        run.add("long", range(30), 2, priority)
        for _ in range(5):
            chunks = run.step()
            assert ("reader", 1) in [(name, n) for name, _, n in chunks]
            assert "long" in [name for name, _, _ in chunks]
            assert sum(n for _, _, n in chunks) == 6
        run.finish()
        assert run.answer("reader") == right_answer([1, 2], 20)
        assert run.answer("long") == right_answer(range(30), 2)

    run = make(8)
    run.add("a", range(21), 1)
    run.finish()
    run.add("b", [*range(20), *range(50, 60)], 2)
    assert run.step() == [("b", 20, 8)]  # 20 tokens were found
    ### END SOLUTION


# %% test="my_tests" points=3
my_tests = bugs_caught(my_tests, "13")

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# For each bug that got away, the check says where to look.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# One prompt alone, just below, at and above twice the budget. A long prompt behind a reader, and in front of one. Two
# prompts with the same beginning, one after the other.
#
# </details>
# <details><summary>Hint 3: a right scheduler is refused</summary>
#
# Two requests may stand in either order in a step's list: do not expect one.
#
# </details>
#
# ## Check yourself

# %% [markdown] lang="zh" en="76e738f3"
# <details><summary>提示 1：从哪里入手</summary>
#
# 每个漏网的 bug，检查都会告诉你该看哪里。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 单独一个提示词，长度比预算的两倍小一点、正好相等、大一点。一位读者，加一个排在他后面或前面的长提示词。两个开头相同的提示词，一个接一个。
#
# </details>
# <details><summary>提示 3：正确的调度器被拒绝了</summary>
#
# 同一步的列表里，两个请求谁先谁后都可以：不要指望某个固定的顺序。
#
# </details>
#
# ## 自测
#
# 预算是 512 个 token，有 40 个人在读。这时来了一个 8,192 个 token 的提示词。要走多少步，它才拿到第一个 token？

# %% tags=["self-check"]
predict("13.steps", value=None)

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Names as of 2026: the main branches of vLLM and SGLang.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | chunked prefill | on by default in V1 | on; `--chunked-prefill-size -1` turns it off |
# | token budget | `max_num_batched_tokens`, shared with decodes | `--chunked-prefill-size`, for prompts |
# | default | on an H100 8,192 to serve and 16,384 offline; on an A100 2,048 and 8,192 | by GPU memory: 8,192 on an H100, 16,384 on a B200 |
# | decodes ride along | always: `v1/core/sched/scheduler.py` | with `--enable-mixed-chunk` |
# | one prompt's share | `long_prefill_token_threshold` | - |
#
# The other way out: other machines compute prompts and send the K and V over (**disaggregation**). Then no prompt stands in a
# decode's way, for the price of more machines and a fast network.
#
# > **What this does not show**
# >
# > - Time on a GPU. Ours is a roofline with stated constants, and a small model on a CPU.
# > - Kernels. A step with one long chunk and many decodes is ragged, and real kernels lose time there.
# > - Tensor parallel traffic: our 70B model talks between GPUs for free.
# > - A service. One long prompt and eight readers are not a trace. Lesson 15 takes one.

# %% [markdown] lang="zh" en="333ca6c8"
# ## 在生产系统中
#
# 名称以 2026 年 vLLM 和 SGLang 的 main 分支为准。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | 分块预填充 | V1 默认开启 | 默认开启；`--chunked-prefill-size -1` 关闭 |
# | token 预算 | `max_num_batched_tokens`，和解码共用 | `--chunked-prefill-size`，只管提示词 |
# | 默认值 | H100 上在线服务 8,192，离线 16,384；A100 上 2,048 和 8,192 | 按显存大小：H100 是 8,192，B200 是 16,384 |
# | 解码搭车 | 总是如此：`v1/core/sched/scheduler.py` | 加上 `--enable-mixed-chunk` |
# | 单个提示词的份额 | `long_prefill_token_threshold` | - |
#
# 另一条路，是让别的机器去算提示词，再把 K 和 V 传过来，这叫**预填充与解码分离**（disaggregation）。这样，提示词再也不会挡解码的路，代价是更多的机器，还要有高速网络。
#
# > **这一课没有说明的事**
# >
# > - GPU 上的时间。我们的时间来自屋顶线模型（常数都写明了），以及 CPU 上的小模型。
# > - kernel。一步里既有一个长 chunk，又有许多解码，长短不齐，真实的 kernel 会为此多花时间。
# > - 张量并行的通信。我们的 70B 模型没有算 GPU 之间的通信时间。
# > - 真实的服务。一个长提示词加八位读者，算不上请求记录（trace）。第 15 课会用一份。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Does chunking change the answer?</summary>
#
# No. The same tokens see the same tokens. The last digit may differ, since sums are made in other pieces. At a near-tie
# another token may win.
#
# </details>
# <details><summary>May a chunk end inside a block?</summary>
#
# Yes. The next chunk goes on in the same block, as a decode does. The block can be found by others once it is full.
#
# </details>
# <details><summary>Why not give each prompt a fixed chunk, 512 say?</summary>
#
# Then two prompts make 1,024, and the step is twice as long. A budget is for the step, so the gap is bounded.
#
# </details>

# %% [markdown] lang="zh" en="3b3d585b"
# ## 常见问题
#
# <details><summary>分块预填充会改变回答吗？</summary>
#
# 不会。同样的 token 看见的还是同样的 token。求和时分段不同，最后一位数字可能不一样；两个 token 几乎打平时，胜出的可能是另一个。
#
# </details>
# <details><summary>chunk 可以在块的中间结束吗？</summary>
#
# 可以。下一个 chunk 接着填同一个块，和解码一样。块填满之后，别人才能找到它。
#
# </details>
# <details><summary>为什么不给每个提示词固定的 chunk，比如 512？</summary>
#
# 那样，两个提示词就是 1,024，一步的时间翻倍。预算管的是一整步，所以间隔才有上限。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A whole prompt of 32,768 tokens stops every stream for more than a second. In chunks the readers go on.
# - Chunks compute exactly the same, and read the prefix again. What costs is the step itself, and weights read for few tokens.
# - One token budget for the step: small for ITL, large for TTFT. Everybody behind is owed one token.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | chunked prefill | 分块预填充 | "prompt splitting" | a prompt computed in several steps |
# | token budget | token 预算 | "max batched tokens" | the most tokens that a step computes |
# | stall-free batching | 无停顿批处理 | "piggybacking" | decodes in every step, prompts in what is left |
# | ITL | token 间延迟 | "TBT", "TPOT" | the gap between two tokens of one answer |
#
# **Open exercises.** *Easy:* plot the TTFT of a second prompt that arrives a little after the long one. *Medium:* write a
# `chunk_size` that holds a limit in ms, not in tokens: smaller chunks towards the end. *Research:* should a short prompt
# overtake a long one that is half computed?
#
# **Back:** [12 · Continuous batching](lessons/12_continuous_batching.ipynb) · **Next:** [14 · Preemption](lessons/14_preemption.ipynb)

# %% [markdown] lang="zh" en="7d9f5bc7"
# ## 三句话总结
#
# - 整个算 32,768 个 token 的提示词，所有人都要停一秒多。切成 chunk，读者就能一直往下读。
# - 切成 chunk，计算量一点不变，只是要重读前缀。真正的代价是每一步的固定开销，以及为很少的 token 读一遍权重。
# - 每步一份 token 预算：小的对 ITL 好，大的对 TTFT 好。要给排在后面的每个人留一个 token。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | 分块预填充 | chunked prefill | “prompt splitting” | 一个提示词分几步算完 |
# | token 预算 | token budget | “max batched tokens” | 一步最多算多少个 token |
# | 无停顿批处理 | stall-free batching | “piggybacking” | 每一步都有解码，剩下的给提示词 |
# | token 间延迟 | ITL | “TBT”、“TPOT” | 同一个回答里相邻两个 token 的间隔 |
#
# **开放练习。** *简单*：长提示词之后不久又来一个提示词，画出它的 TTFT。*中等*：写一个 `chunk_size`，按毫秒而不是按 token 数守住上限：越到后面，chunk 越小。*研究*：长提示词算到一半，该不该让短提示词插到它前面？
#
# **上一课：** [12 · 连续批处理](lessons/12_continuous_batching.ipynb) · **下一课：** [14 · 抢占](lessons/14_preemption.ipynb)
