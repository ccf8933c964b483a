# %% [markdown] lang="en" tags=["goals"]
# # 12 · Continuous batching
#
# **Decide anew at every step who runs.**
#
# 90 to 120 minutes · plain Python, no GPU · after lessons 03, 06 and 07
#
# After this lesson you can
#
# - count what a static batch computes for nobody, and compute TTFT, ITL, TPOT, throughput and goodput from timestamps;
# - write the scheduler: who gets tokens, who starts, who waits; and run it in the engine and in a simulator;
# - say what Orca's 36.9x was measured on, and when continuous batching does nothing.

# %% [markdown] lang="zh" en="ce022554"
# # 12 · 连续批处理
#
# **每一步都重新决定谁来跑。**
#
# 90 到 120 分钟 · 纯 Python，不需要 GPU · 先学第 03、06、07 课
#
# 学完这一课，你能够：
#
# - 数出静态批处理白算了多少，并用时间戳算出 TTFT、ITL、TPOT、吞吐量和有效吞吐（goodput）；
# - 写出调度器：谁拿到 token，谁开始，谁等待；并让它在引擎和模拟器里跑起来；
# - 说清 Orca 的 36.9 倍是在什么条件下测的，连续批处理什么时候毫无作用。

# %%
import statistics
import time
from itertools import pairwise

from mini_engine import LLM, EngineConfig, SamplingParams
from mini_engine.course import bugs_caught, check, panel, picture, predict, svg
from mini_engine.course.engine_and_simulator import at_once, run_both
from mini_engine.course.own_scheduler import SchedulerLab, make_scheduler, serve
from mini_engine.course.panels import p12_continuous_batching as pictures
from mini_engine.course.timeline import timeline
from mini_engine.roofline.measure import one_thread
from mini_engine.scheduling import Scheduler
from mini_engine.simulator import Efficiency, StaticBatch, simulate, summarize
from mini_engine.simulator.calibrate import shrink
from mini_engine.workload import Trace, TraceRequest, load_trace

# %% [markdown] lang="en"
# ## The pain
#
# Six users ask at the same moment. Their prompts have 6 tokens each. Their answers will have 3, 20, 5, 8, 12 and 4 tokens, but
# nobody knows that yet. The server has four **seats**: rows of a batch.
#
# It does what servers did until 2022. It takes four requests, runs them until the last one is done, and takes the next.

# %% [markdown] lang="zh" en="03c53e8d"
# ## 痛点
#
# 六个用户同时提问。每个提示词有 6 个 token。回答的长度分别是 3、20、5、8、12 和 4 个 token，只是现在谁也不知道。服务器有四个**席位**（seat），也就是一批里的四行。
#
# 它的做法，就是 2022 年以前服务器的做法：取四个请求，一直跑到最后一个结束，再取下一批。

# %% tags=["claim-static"]
prompts, outputs = [6] * 6, [3, 20, 5, 8, 12, 4]
config = EngineConfig(
    num_blocks=64, block_size=4, max_num_seqs=4, enable_chunked_prefill=False, enable_prefix_caching=False
)
static = run_both(at_once(prompts, outputs), config, StaticBatch)
print(timeline(static.result))

# %% [markdown] lang="en"
# One row a user, one column a step; the first step computes the whole prompt. User 0 has the whole answer after 3 steps. Yet the
# row is computed for 17 more steps, for nobody. And user 4 waits 20 steps beside rows that nobody needs.
#
# A static batch is a rectangle. A **slot** is room for one token in one row. Prompts are filled up to the longest one, and
# rows that are done up to the longest answer. That filling is **padding**. For $n$ requests with prompts $p_i$ and answers
# $o_i$, count the slots:
#
# $$\text{computed} = n \times (\max p + \max o - 1) \qquad \text{needed} = \sum_i (p_i + o_i - 1)$$
#
# The rest is wasted. Why $-1$? The last token of an answer is sampled, and never computed. A guess first:

# %% [markdown] lang="zh" en="23dba3b7"
# 一行是一个用户，一列是一步；第一步把整个提示词算完。用户 0 在 3 步之后就有了完整的回答，可他那一行又白算了 17 步。而用户 4 干等了 20 步，旁边明明有几行早就没人需要了。
#
# 静态批是一个矩形。一个**槽位**，是一行里放一个 token 的位置。短的提示词补齐到最长的那个，已经结束的行补齐到最长的回答。补上去的这些就是**填充**（padding）。一个批有 $n$ 个请求，提示词长 $p_i$，回答长 $o_i$，那么
#
# $$\text{computed} = n \times (\max p + \max o - 1) \qquad \text{needed} = \sum_i (p_i + o_i - 1)$$
#
# 左边是算了的槽位数，右边是需要的槽位数，两者之差就是浪费。为什么要 $-1$？因为回答的最后一个 token 采样出来就结束了，不用再拿去算。先猜一猜：一个静态批有四个请求，提示词分别有 10、4、7、10 个 token，回答分别有 3、20、5、8 个 token。算了的槽位里，有多少个是白算的？

# %%
predict("12.padding", value=None)

# %% [markdown] lang="en"
# ## Exercise 12.1 - padding
#
# Difficulty 1/5 · importance 4/5 · 10 minutes · about 6 lines
#
# Write `static_slots(prompts, outputs, seats)`. It returns two integers: the slots that static batches compute, and how many of
# them are wasted.
#
# - Batches are made in order: the first `seats` requests, then the next. The last batch may be smaller.
# - No request, no slot: `(0, 0)`.
#
# Small case: `static_slots([4, 1], [1, 1], 2)` is `(8, 3)`.

# %% [markdown] lang="zh" en="48ed181f"
# ## 练习 12.1 - 填充
#
# 难度 1/5 · 重要性 4/5 · 10 分钟 · 大约 6 行
#
# 写出 `static_slots(prompts, outputs, seats)`。它返回两个整数：静态批一共算了多少个槽位，其中浪费了多少个。
#
# - 按顺序组批：先取前 `seats` 个请求，再取后面的。最后一批可以不满。
# - 没有请求就没有槽位：`(0, 0)`。
#
# 小例子：`static_slots([4, 1], [1, 1], 2)` 是 `(8, 3)`。


# %% exercise="static_slots"
def static_slots(prompts, outputs, seats):
    """(slots computed, slots wasted) of static batches."""
    ### BEGIN SOLUTION
    slots = used = 0
    for first in range(0, len(prompts), seats):
        p, o = prompts[first : first + seats], outputs[first : first + seats]
        slots += len(p) * (max(p) + max(o) - 1)
        used += sum(p) + sum(o) - len(o)
    return slots, slots - used
    ### END SOLUTION


# %% test="static_slots" points=1
static_slots = check("12.padding", static_slots)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `range(0, len(prompts), seats)` gives where each batch begins. A slice past the end is just shorter.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# For each batch add the rectangle, and add what was needed. Return the first sum, and the difference.
#
# </details>
# <details><summary>Hint 3: "short prompts are filled up to the longest" fails</summary>
#
# The longest prompt and the longest answer may belong to two requests. Take both maxima, not the maximum of the sums.
#
# </details>
#
# Now for real lengths: 150 requests with the length statistics of a chat service, 32 seats. (The trace is synthetic.) What if
# the server knew the lengths and sorted by them?

# %% [markdown] lang="zh" en="62fb18cc"
# <details><summary>提示 1：从哪里入手</summary>
#
# `range(0, len(prompts), seats)` 给出每一批的起点。切片超出末尾不会出错，只是短一些。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 对每一批，把矩形的面积累加到第一个和里，把需要的槽位数累加到第二个和里。返回第一个和，以及两个和之差。
#
# </details>
# <details><summary>提示 3：“short prompts are filled up to the longest”这一项不通过</summary>
#
# 最长的提示词和最长的回答，可能属于两个不同的请求。要分别取最大值，而不是取两者之和的最大值。
#
# </details>
#
# 现在换成实际会遇到的长度：150 个请求，长度的统计特征与一个聊天服务相同，服务器有 32 个席位。（这份请求记录是合成的。）如果服务器事先知道长度，再按长度排序呢？

# %% tags=["claim-padding"]
chats = load_trace("synthetic_azure_conv.csv").head(150)
lengths = [(request.num_prompt_tokens, request.num_output_tokens) for request in chats]
cases = {
    "six users": (list(zip(prompts, outputs)), 4),
    "chats, as they come": (lengths, 32),
    "chats, sorted by answer": (sorted(lengths, key=lambda pair: pair[1]), 32),
    "equal lengths": ([(100, 50)] * 64, 32),
}
for words, (pairs, seats) in cases.items():
    slots, wasted = static_slots(*(list(side) for side in zip(*pairs)), seats)
    print(f"{words:<24}{slots:9,} slots, {wasted:8,} wasted, {wasted / slots:6.1%}")

# %% [markdown] lang="en"
# 73.8% for nobody. Sorting by answers does little, as prompts are ragged too. And nobody knows an answer's length beforehand.
#
# "So 73.8% of the time is wasted" would be a mistake. A slot is work, not time. A step of our toy model, by the CPU's own clock:

# %% [markdown] lang="zh" en="24d6a133"
# 73.8% 是白算的。按回答长度排序也没多大用，因为提示词同样长短不一。何况谁也不能事先知道回答有多长。
#
# “所以 73.8% 的时间浪费了”，这样说是错的。槽位是工作量，不是时间。下面测一测我们的玩具模型走一步要多久，计的是 CPU 时间：


# %% tags=["claim-hidden", "nbval-ignore-output"]
def step_time(model, rows):
    """Milliseconds of CPU time of a step in which `rows` requests decode: the best of 11."""
    for number in range(rows):
        model.engine.add_request(f"r{number}", [7 + number] * 8, SamplingParams(max_tokens=12, ignore_eos=True))
    times = []
    while model.engine.has_unfinished_requests():
        begin = time.thread_time()
        model.engine.step()
        times.append((time.thread_time() - begin) * 1000)
    return min(times[1:])


with one_thread():
    toy = LLM("tiny-gqa", num_blocks=256)
    step_time(toy, 8)  # warm up
    one, eight = step_time(toy, 1), step_time(toy, 8)
print(f"a step of 1 row {one:.1f} ms, of 8 rows {eight:.1f} ms; 8 times the slots, {eight / one:.1f} times the time")

# %% [markdown] lang="en"
# Eight rows take far less than eight times as long. Here Python's overhead hides most of the padding. On a GPU, reading the
# weights hides some (lesson 03). So we count slots, and measure time on its own.
#
# What hurts most is not the padding. It is the **wait** for the longest answer of a batch.
#
# ## Iteration-level scheduling
#
# The cure is from [Orca](https://www.usenix.org/conference/osdi22/presentation/yu) (Yu et al. 2022): schedule one
# **iteration**, one step of the model, in place of a whole batch. After each step, who is done leaves, and who waits may start.
# Most people say **continuous batching**, TensorRT-LLM *in-flight batching*.

# %% [markdown] lang="zh" en="258c0d26"
# 八行用的时间，远不到一行的八倍。在这里，填充的大部分被 Python 的开销盖住了；在 GPU 上，读权重也会盖住一部分（第 03 课）。所以槽位归槽位数，时间要另外测。
#
# 最让人难受的还不是填充，而是**等**：等同一批里最长的那个回答。
#
# ## 迭代级调度
#
# 解法来自 [Orca](https://www.usenix.org/conference/osdi22/presentation/yu)（Yu 等，2022）：调度的单位不再是整批，而是一次**迭代**（iteration），也就是模型的一步。每一步之后，结束了的离开，在等的可以开始。大多数人叫它**连续批处理**（continuous batching），TensorRT-LLM 叫它 *in-flight batching*。

# %% tags=["diagram"]
svg(*pictures.loop())

# %% [markdown] lang="en"
# Can rows at different places share a step? All tokens of a step lie in one flat list. Only attention must know whose they are,
# and it reads each request's own block table (lesson 07). Orca calls that *selective batching*. No rectangle, no padding: our
# engine has none, whatever the scheduler. What you saw above is the simulator's count of what a rectangle would compute.

# %% [markdown] lang="zh" en="5949f6e6"
# 各行进度不同，能放在同一步里算吗？能。一步里的所有 token 排成一个扁平的列表，只有注意力需要知道哪个 token 是谁的；它读的是每个请求自己的块表（第 07 课）。Orca 把这叫作 *selective batching*（选择性批处理）。没有矩形，就没有填充：不管用哪种调度器，我们的引擎都没有填充。上面你看到的数字，是模拟器数出来的：假如是矩形，要算多少。
#
# 再猜一猜：还是那六个请求，回答是 3、20、5、8、12 和 4 个 token，四个席位。如果席位一空出来就马上用上，六个请求全部做完要多少步？

# %%
predict("12.steps", value=None)

# %% tags=["claim-iteration", "claim-three-ways"]
continuous = run_both(at_once(prompts, outputs), config, Scheduler)
lines = {"request level": timeline(static.result), "iteration level": timeline(continuous.result)}
for words, run in (("request level", static), ("iteration level", continuous)):
    line = lines[words]
    print(f"{words:<16}{line.num_steps} steps, {run.result.usage.num_padding} slots wasted")
formula, counted, drawn = (
    static_slots(prompts, outputs, 4)[1],
    static.result.usage.num_padding,
    lines["request level"].count("padding"),
)
print(f"wasted by the formula {formula}, by the simulator's counter {counted}, in the picture {drawn}")
assert formula == counted == drawn
picture(pictures.together, lines=lines, height=4.2)

# %% [markdown] lang="en" tags=["claim-glossary"]
# 20 steps in place of 32, and no padding. User 4 starts after 3 steps.
#
# ## What to measure
#
# A request arrives at $a$ and gets its tokens at $t_1, \ldots, t_n$. All else follows:
#
# | metric | from timestamps | what the user feels |
# |---|---|---|
# | **TTFT**, time to first token | $t_1 - a$ | "does it react?": queue, prompt, all of it |
# | **ITL**, inter-token latency | every gap $t_{k+1} - t_k$ | "does it stutter?" Look at p99 and the maximum |
# | **TPOT**, time per output token | $(t_n - t_1) / (n - 1)$, one per request | "how fast does it write?" |
# | **throughput** | tokens / (last token − first arrival) | nothing: it is the owner's figure |
# | **goodput** | requests per second that meet every limit | the owner's figure that looks at users |
#
# - A single token has no gap: its TPOT is None, not 0.
# - The limits (SLO) belong to a goodput: without them it says nothing.
# - Some tools divide $t_n - a$ by $n$ and call that TPOT. Then the queue is in it.
#
# ## Exercise 12.2 - metrics
#
# Difficulty 2/5 · importance 5/5 · 15 minutes · about 12 lines
#
# Write `metrics(requests, ttft, tpot)`. `requests` is a list of `(arrival, token_times)`; `ttft` and `tpot` are limits, all in
# seconds. Return a dict:
#
# - `"ttft"`: a list, one number a request. `"tpot"`: the same, with `None` for a single token.
# - `"itl"`: one list of all gaps of all requests, in order.
# - `"throughput"`: output tokens per second, from the first arrival to the last token of all.
# - `"goodput"`: requests that meet both limits ("at most" is met; a single token meets any TPOT), per second of that window.

# %% [markdown] lang="zh" en="e88d8709"
# 只要 20 步，而不是 32 步，也没有填充。用户 4 在 3 步之后就开始了。
#
# ## 该测什么
#
# 一个请求在时刻 $a$ 到达，在时刻 $t_1, \ldots, t_n$ 陆续拿到 token。所有指标都由此算出：
#
# | 指标 | 由时间戳计算 | 用户的感受 |
# |---|---|---|
# | **TTFT**，首 token 延迟 | $t_1 - a$ | “有反应吗？”排队、提示词，全算在内 |
# | **ITL**，token 间延迟 | 每一个间隔 $t_{k+1} - t_k$ | “会卡顿吗？”看 p99 和最大值 |
# | **TPOT**，每个输出 token 的时间 | $(t_n - t_1) / (n - 1)$，每个请求一个 | “写得快吗？” |
# | **吞吐量**（throughput） | token 数 /（最后一个 token 的时刻 − 最早的到达时刻） | 感受不到：这是运营方看的数字 |
# | **有效吞吐**（goodput） | 每秒有多少个请求满足所有限值 | 也是运营方看的数字，但顾及了用户 |
#
# - 只有一个 token 就没有间隔：它的 TPOT 是 None，不是 0。
# - 谈有效吞吐，一定要说明限值（SLO）：不说限值，这个数字没有意义。
# - 有些工具用 $t_n - a$ 除以 $n$，也叫 TPOT。这样一来，排队也算进去了。
#
# ## 练习 12.2 - metrics
#
# 难度 2/5 · 重要性 5/5 · 15 分钟 · 大约 12 行
#
# 写出 `metrics(requests, ttft, tpot)`。`requests` 是 `(arrival, token_times)` 的列表；`ttft` 和 `tpot` 是限值；时间的单位都是秒。返回一个字典：
#
# - `"ttft"`：一个列表，每个请求一个数。`"tpot"`：同样，只有一个 token 的请求是 `None`。
# - `"itl"`：一个列表，按顺序放所有请求的所有间隔。
# - `"throughput"`：每秒输出多少个 token，时间窗口从最早的到达时刻，到所有请求的最后一个 token。
# - `"goodput"`：在这个窗口里，平均每秒有多少个请求同时满足两个限值（正好等于也算满足；只有一个 token 时，TPOT 总算满足）。


# %% exercise="metrics"
def metrics(requests, ttft, tpot):
    """TTFT, ITL, TPOT, throughput and goodput of a run."""
    ### BEGIN SOLUTION
    first = [times[0] - arrival for arrival, times in requests]
    gaps = [[b - a for a, b in pairwise(times)] for _, times in requests]
    mean = [sum(each) / len(each) if each else None for each in gaps]
    window = max(times[-1] for _, times in requests) - min(arrival for arrival, _ in requests)
    met = [f <= ttft and (m is None or m <= tpot) for f, m in zip(first, mean)]
    return {
        "ttft": first,
        "itl": [gap for each in gaps for gap in each],
        "tpot": mean,
        "throughput": sum(len(times) for _, times in requests) / window,
        "goodput": sum(met) / window,
    }
    ### END SOLUTION


# %% test="metrics" points=2
metrics = check("12.metrics", metrics)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `pairwise(times)` gives the pairs of neighbours. Do that for each request on its own.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# First times, gaps, mean gaps. Then the window: the largest last time minus the smallest arrival. Count who meets both limits.
#
# </details>
# <details><summary>Hint 3: "throughput is tokens over the whole window" fails</summary>
#
# The last request in the list need not be the last to end. And the window starts at an arrival, not at a token.
#
# </details>
#
# Your function on the six users. Say that a step takes one second:

# %% [markdown] lang="zh" en="dd8cd8e5"
# <details><summary>提示 1：从哪里入手</summary>
#
# `pairwise(times)` 给出一对对相邻的元素。每个请求要单独处理。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先算首 token 延迟、间隔、平均间隔。再算窗口：所有请求里最晚的那个 token 的时刻，减去最早的到达时刻。数一数有几个请求同时满足两个限值。
#
# </details>
# <details><summary>提示 3：“throughput is tokens over the whole window”这一项不通过</summary>
#
# 列表里的最后一个请求，不一定最后结束。而且窗口从到达时刻开始，不是从某个 token 开始。
#
# </details>
#
# 用你的函数看看那六个用户。假设每步用一秒：

# %% tags=["claim-metrics"]
for words, run in (("request level", static), ("iteration level", continuous)):
    of = metrics([(each.arrival, each.token_times) for each in run.result.times()], ttft=10, tpot=1)
    mean = statistics.mean(of["ttft"])
    print(f"{words:<16}TTFT {mean:.1f} s on average, {max(of['ttft']):.0f} at most; ITL {max(of['itl']):.0f} s at most")
    print(f"{'':16}{of['throughput']:.3f} tok/s; {of['goodput']:.3f} requests/s with TTFT <= 10 s and TPOT <= 1 s")

# %% [markdown] lang="en"
# ITL is 1 s everywhere. All the difference is in the wait, and so in throughput and goodput.
#
# "Throughput (ITL)" stands in many tables. That is a mistake: ITL is a **latency**. A guess:

# %% [markdown] lang="zh" en="be900eaf"
# ITL 处处都是 1 s。差别全在等待上，所以也体现在吞吐量和有效吞吐上。
#
# 很多表格里写着“吞吐量（ITL）”。这是错的：ITL 是一种**延迟**。猜一猜：32 个请求在同一个批里解码，每个请求看到的 ITL 都是二十五毫秒。服务器每秒输出多少个 token？

# %%
predict("12.throughput", value=None)

# %% tags=["claim-itl-latency"]
of = Efficiency()
print(
    f"assumed: {of.flops:.0%} of the peak FLOP/s, {of.bandwidth:.0%} of the bandwidth, {of.step_overhead * 1000:.0f} ms a step"
)
for batch in (1, 8, 32, 128):
    run = summarize(simulate(at_once([100] * batch, [200] * batch), max_num_seqs=batch, prefix_cache=False))
    print(f"batch {batch:3}: ITL {run.itl.p50 * 1000:5.1f} ms, 1 / ITL {1 / run.itl.p50:4.0f}, ", end="")
    print(f"throughput {run.output_tokens_per_s:6,.0f} tok/s")

# %% [markdown] lang="en"
# (Llama-3-8B on one H100, simulated: roofline times.)
# From top to bottom the ITL gets *worse*, and throughput many times better. You trade one for the other.
#
# ## Exercise 12.3 - the scheduler
#
# Difficulty 4/5 · importance 5/5 · 25 minutes · about 16 lines
#
# Write the two loops of the engine's scheduler. A step has a budget of tokens (`draft.budget`). Each **chunk** that you add, some
# tokens of one request, takes from it.
#
# `schedule_running(self, draft)` serves `self.running`, in order, while there is budget. For the request at `position`:
#
# - how many tokens: `n = self.chunk_size(self.missing(request), draft.budget, behind)`; `behind` counts those after it. A decode
#   misses one token, so `n` is 1.
# - blocks: `self.make_room(request, n, position, draft)`. True: then `draft.add_chunk(request, n)`. False: it lost its place, and
#   the next one stands at `position` now. (Who loses, and how, is lesson 14.)
#
# `schedule_waiting(self, draft)` starts who waits, while there is budget:
#
# - `self.next_in_line()` is the first in line, or `None`.
# - Beside others it needs seats: `self.num_seats_taken` and `request.num_seqs` together at most `self.config.max_num_seqs`. And
#   blocks: `self.admit(request)`. **When nothing runs, it needs neither.** Why?
# - `self.start(request, draft)` gives it blocks and its first chunk. False: it does not fit into this step.
# - Who does not fit ends the loop. Nobody overtakes.

# %% [markdown] lang="zh" en="2583ab68"
# （Llama-3-8B，一块 H100，模拟：时间来自屋顶线模型。）从上往下，ITL 越来越*差*，吞吐量却增加到许多倍。这是拿延迟换吞吐量。
#
# ## 练习 12.3 - 调度器
#
# 难度 4/5 · 重要性 5/5 · 25 分钟 · 大约 16 行
#
# 写出引擎调度器的两个循环。每一步有一份 token 预算（`draft.budget`）。你每加入一个 **chunk**，也就是某个请求要在这一步算的一段 token，预算就相应减少。
#
# `schedule_running(self, draft)`：只要还有预算，就按顺序处理 `self.running`。对于位置 `position` 上的请求：
#
# - 多少个 token：`n = self.chunk_size(self.missing(request), draft.budget, behind)`；`behind` 是排在它后面的请求数。解码只缺一个 token，所以 `n` 是 1。
# - 块：`self.make_room(request, n, position, draft)`。返回 True，就 `draft.add_chunk(request, n)`。返回 False，说明它失去了位置，现在 `position` 上已经是下一个请求。（谁失去位置、怎样失去，是第 14 课的内容。）
#
# `schedule_waiting(self, draft)`：只要还有预算，就让在等的请求开始：
#
# - `self.next_in_line()` 是队首的请求，没有就是 `None`。
# - 如果已经有别的请求在跑，它需要席位：`self.num_seats_taken` 加 `request.num_seqs`，不超过 `self.config.max_num_seqs`。还需要块：`self.admit(request)`。**如果没有请求在跑，这两样都不需要**。为什么？
# - `self.start(request, draft)` 给它块和第一个 chunk。返回 False，说明这一步放不下它。
# - 遇到放不下的，循环就结束。谁也不能插队。


# %% exercise="MyScheduler"
class MyScheduler(SchedulerLab):
    def schedule_running(self, draft):
        """A token for everybody who runs."""
        ### BEGIN SOLUTION
        position = 0
        while position < len(self.running) and draft.budget > 0:
            request = self.running[position]
            behind = len(self.running) - position - 1
            n = self.chunk_size(self.missing(request), draft.budget, behind)
            if self.make_room(request, n, position, draft):
                draft.add_chunk(request, n)
                position += 1
        ### END SOLUTION

    def schedule_waiting(self, draft):
        """Start those who wait, in order, until one does not fit."""
        ### BEGIN SOLUTION
        while draft.budget > 0:
            request = self.next_in_line()
            if request is None:
                return
            if self.running:
                seats = self.num_seats_taken + request.num_seqs
                if seats > self.config.max_num_seqs or not self.admit(request):
                    return
            if not self.start(request, draft):
                return
        ### END SOLUTION


# %% test="MyScheduler" points=4
MyScheduler = check("12.schedule", MyScheduler)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `self.running` may get shorter while you walk through it. So use `while position < len(self.running)`, not `for`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Running: size, room, chunk, and only then `position += 1`. Waiting: look at the first, then seats, then `admit`, then `start`;
# return at the first no.
#
# </details>
# <details><summary>Hint 3: "who has the machine to itself starts without conditions" fails</summary>
#
# `admit` keeps a reserve, or counts for others. If nobody runs, all seats and blocks are free. There is nobody to wait for: a
# refusal would last for ever.
#
# </details>
#
# `serve` runs your scheduler alone and tells the tokens of each request in each step. `(4, 2, 2, 2)` is a prompt of 4, an answer of
# 2, before step 2, and two answers: the second is `c.1`.
#
# Then the engine and the simulator: 60 short chats, few blocks, and every step takes a second. Do both plan the same, and the same
# as the engine's own?

# %% [markdown] lang="zh" en="06c9bea7"
# <details><summary>提示 1：从哪里入手</summary>
#
# 你遍历 `self.running` 的时候，它可能变短。所以用 `while position < len(self.running)`，不要用 `for`。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 在跑的：先算大小，再腾出块，加入 chunk，最后才 `position += 1`。在等的：看队首，查席位，再 `admit`，再 `start`；哪一步不行，就在那里返回。
#
# </details>
# <details><summary>提示 3：“who has the machine to itself starts without conditions”这一项不通过</summary>
#
# `admit` 会留一些余量，或者把别的请求也算进去。如果没有请求在跑，席位和块就全都空着，也没有谁可等：这时拒绝，就永远拒绝下去了。
#
# </details>
#
# `serve` 单独运行你的调度器，给出每一步里每个请求有多少个 token。`(4, 2, 2, 2)` 的意思是：提示词 4 个 token，回答 2 个，在第 2 步之前到达（从 0 数起），要两个回答；第二个叫 `c.1`。
#
# 然后放进引擎和模拟器：60 段短对话，块很少，每步用一秒。两边的计划一样吗？和引擎自己的调度器也一样吗？

# %% tags=["claim-same-plans"]
for step, tokens in enumerate(serve(make_scheduler(MyScheduler), {"a": (3, 4), "b": (5, 2, 1), "c": (4, 2, 2, 2)})):
    print(f"step {step}: {tokens}")
small = shrink(load_trace("synthetic_azure_conv.csv").head(60), lengths=24)
tight = EngineConfig(
    num_blocks=80, block_size=4, max_num_seqs=8, max_num_batched_tokens=256, enable_chunked_prefill=False
)
yours, own = (run_both(small, tight, kind) for kind in (MyScheduler, Scheduler))
print(f"steps planned: {len(yours.planned)}; preemptions: {yours.engine.stats().num_preemptions}")
print("simulator and engine, your scheduler:", yours.simulated == yours.planned)
print("your scheduler and the engine's own: ", yours.planned == own.planned)
assert yours.simulated == yours.planned == own.planned

# %% [markdown] lang="en"
# Equal, step for step. The simulator runs the same scheduler, and makes up only the time.
#
# ## Play with it
#
# What is scheduled: the request, the iteration, or the iteration with prompts in chunks (lesson 13)? Set `spread` to 0, or `seats`
# to 1. What is left of the gain? And chunks make more steps: what do they buy? Look at the longest gap.

# %% [markdown] lang="zh" en="e68800f6"
# 每一步都相同。模拟器跑的是同一个调度器，只有时间是虚拟的。
#
# ## 动手试试
#
# 调度的单位是什么：请求、迭代，还是迭代加分块预填充（第 13 课）？把 `spread` 调成 0，或者把 `seats` 调成 1，好处还剩多少？再看分块预填充：步数变多了，换来的是什么？看最长的间隔。

# %%
panel(
    pictures.batching,
    unit=list(pictures.POLICIES),
    requests=(8, 2, 10),
    spread=(12, 0, 15),
    seats=(4, 1, 8),
    width=7.2,
    height=3.4,
)

# %% tags=["claim-panel"]
picture(pictures.batching, unit="iteration", requests=8, spread=12, seats=4, width=7.2, height=3.4)

# %% [markdown] lang="en"
# ## Three units
#
# The 150 chats, 8 a second, on the simulated H100 with 32 seats. Goodput asks for a TTFT of 1 s and a TPOT of 50 ms.

# %% [markdown] lang="zh" en="00fa6a62"
# ## 三种单位
#
# 还是那 150 段对话，每秒到达 8 段，在模拟的 H100 上跑，32 个席位。有效吞吐要求 TTFT 不超过 1 s，TPOT 不超过 50 ms。


# %% tags=["claim-units", "claim-loses"]
def report(words, trace, **options):
    of = summarize(simulate(trace, prefix_cache=False, **options), ttft=1.0, tpot=0.05)
    padding = f"{of.padding_share:.0%}" if of.num_padding else "-"
    print(
        f"{words:<20}{of.requests_per_s:6.2f}{of.ttft.p50:9.2f}{of.itl.p50 * 1000:8.1f}{of.itl.max * 1000:8.0f}", end=""
    )
    print(f"{of.goodput.share:9.0%}{padding:>9}")
    return of


COLUMNS = f"{'req/s':>6}{'TTFT p50':>9}{'ITL p50':>8}{'max':>8}{'goodput':>9}{'padding':>9}"
UNITS = "TTFT in s, ITL in ms, goodput as a share of all requests"
print(f"{'unit':<20}{COLUMNS}")
for words, batching in pictures.POLICIES.items():
    report(words, chats.at_rate(8), batching=batching, max_num_seqs=32)
print(UNITS)

# %% [markdown] lang="en" tags=["claim-orca-setup"]
# Scheduling by iteration serves nearly three times as many requests a second. The median TTFT falls from 27.09 s to 0.04 s. (8 come
# a second, and only 6.23 are served: the clock runs until the last answer ends.)
#
# **Where does it lose?** In the longest ITL: 195 ms against 18 ms. Nothing disturbs a static batch while it writes. Here all
# wait in the step that computes a newcomer's prompt. Chunks cut that to 68 ms: lesson 13.
#
# ## What was Orca's 36.9x measured on?
#
# "Continuous batching gives 36.9x", people quote. The paper says of what:
#
# - GPT-3 of 175 billion parameters on 16 A100 of 40 GB, against FasterTransformer of 2022;
# - a synthetic trace: Poisson arrivals, prompts of 32 to 512 tokens, answers of 1 to 128, all lengths equally likely;
# - at a median of 190 ms the one served 0.185 requests a second, Orca 6.81.

# %% [markdown] lang="zh" en="82739634"
# 按迭代调度，每秒完成的请求几乎是原来的三倍。TTFT 的中位数从 27.09 s 降到 0.04 s。（每秒来 8 个，却只完成 6.23 个，是因为计时要到最后一个回答结束才停。）
#
# **它输在哪里**？输在最长的 ITL：195 ms 对 18 ms。静态批往外写回答时，没有谁来打扰。而在这里，只要某一步要算新来者的提示词，大家都得等这一步。用分块预填充，可以降到 68 ms：见第 13 课。
#
# ## Orca 的 36.9 倍是在什么条件下测的
#
# 常有人引用“连续批处理带来 36.9 倍的吞吐量”。论文写明了这是在什么条件下、和谁相比：
#
# - GPT-3，1750 亿参数，16 块 40 GB 的 A100，对手是 2022 年的 FasterTransformer；
# - 请求记录是合成的：泊松到达，提示词 32 到 512 个 token，回答 1 到 128 个 token，各种长度的概率相等；
# - 延迟的中位数同为 190 ms 时，FasterTransformer 每秒完成 0.185 个请求，Orca 完成 6.81 个。
#
# 猜一猜：这里的延迟，指端到端时间除以生成的 token 数。按这个中位数算，一个有 128 个 token 的回答，从请求到达到回答结束要多少秒？

# %%
predict("12.orca", value=None)

# %% [markdown] lang="en" tags=["claim-orca"]
# Before you quote it:
#
# - 190 ms is the median of *end-to-end time over tokens generated*, queue included. It is neither ITL nor TTFT.
# - The factor is read off at that one latency. At another it is another one. And 6.81 / 0.185 is 36.8: both are rounded.
# - It compares two systems, not two schedulers. On equal batches Orca's engine alone was up to 47% faster.
#
# ## Does it need dynamic memory?
#
# "Continuous batching needs dynamic KV allocation" is overstated. Orca reserved room for prompt and `max_tokens` at the start,
# and scheduled by iteration all the same. Write its rule.
#
# ## Exercise 12.4 - admit
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 6 lines
#
# Write `admit(self, request)`: may it start beside those who run, such that **nobody ever runs out of blocks**?
#
# - At its longest a request stores `request.max_num_tokens - 1` tokens, in blocks of `self.config.block_size`.
# - `len(other.block_table)` blocks of a running request are taken already. The rest it was promised.
# - `self.kv.num_free_blocks` are free. (No prefix cache here, and one answer for each request.)

# %% [markdown] lang="zh" en="d0976670"
# 引用之前，请注意：
#
# - 190 ms 是*端到端时间除以生成的 token 数*的中位数，排队也算在内。它既不是 ITL，也不是 TTFT。
# - 这个倍数只在这一个延迟上成立，换一个延迟，就是另一个倍数。而且 6.81 / 0.185 是 36.8：两个数都四舍五入过。
# - 它比较的是两个系统，不是两个调度器。批完全相同时，光是 Orca 的引擎就最多快 47%。
#
# ## 它需要动态内存吗
#
# “连续批处理需要动态分配 KV”，这话说过头了。Orca 在请求开始时就为提示词和 `max_tokens` 预留好位置，照样按迭代调度。请把它的规则写出来。
#
# ## 练习 12.4 - admit
#
# 难度 3/5 · 重要性 4/5 · 15 分钟 · 大约 6 行
#
# 写出 `admit(self, request)`：这个请求现在能不能加入在跑的请求，并且保证**谁也不会半路没有块可用**？
#
# - 一个请求最多要存 `request.max_num_tokens - 1` 个 token，每块有 `self.config.block_size` 个槽位。
# - 在跑的请求已经拿走了 `len(other.block_table)` 个块；还没拿的那些，也已经许给了它。
# - 空闲的块有 `self.kv.num_free_blocks` 个。（这里没有前缀缓存，每个请求也只要一个回答。）


# %% exercise="MyReservation"
class MyReservation(MyScheduler):
    def admit(self, request):
        """Whether its longest fits beside all that was promised to those who run."""

        ### BEGIN SOLUTION
        def most(one):
            return -(-(one.max_num_tokens - 1) // self.config.block_size)

        promised = sum(most(other) - len(other.block_table) for other in self.running)
        return most(request) + promised <= self.kv.num_free_blocks
        ### END SOLUTION


# %% test="MyReservation" points=2
MyReservation = check("12.admit", MyReservation)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `-(-a // b)` rounds up. A started block is a whole block.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Blocks of its longest, plus what each running one has not taken yet. Compare with the free ones.
#
# </details>
# <details><summary>Hint 3: "who fits with all of its answer starts at once" fails</summary>
#
# What the running ones hold is not free any more. Do not count it a second time.
#
# </details>
#
# Now all four combinations. *Reserved* is the old way: a region of 8,192 tokens for each request, the longest that this model
# takes. *Paged* takes blocks as it goes. 65,536 slots of KV memory, chats at 20 a second, 64 seats.

# %% [markdown] lang="zh" en="d6fe4229"
# <details><summary>提示 1：从哪里入手</summary>
#
# `-(-a // b)` 是向上取整。一个块只要开始用，就算一整块。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 它自己最多需要的块，加上每个在跑的请求还没拿的块，再和空闲的块数比较。
#
# </details>
# <details><summary>提示 3：“who fits with all of its answer starts at once”这一项不通过</summary>
#
# 在跑的请求已经持有的块，本来就不算空闲。不要再减一次。
#
# </details>
#
# 现在来看全部四种组合。*reserved*（预留）是老办法：给每个请求留出一段 8,192 个 token 的区域，这是该模型允许的最大长度。*paged*（分页）是用多少块，取多少块。KV 内存有 65,536 个槽位，对话每秒到达 20 段，64 个席位。

# %% tags=["claim-combinations"]
print(f"{'':20}{COLUMNS}")
rates = {}
for batching in ("static", "iteration"):
    for memory in ("reserved", "paged"):
        options = {"batching": batching, "memory": memory, "num_blocks": 4096, "max_num_seqs": 64}
        rates[batching, memory] = report(f"{batching}, {memory}", chats.at_rate(20), **options).requests_per_s
base = rates["static", "reserved"]
print(UNITS)
print("requests a second, over the first:", ", ".join(f"{rate / base:.1f}x" for rate in rates.values()))
print(f"regions of 8,192 tokens in {4096 * 16:,} slots: {4096 * 16 // 8192}")

requests = at_once([6, 9, 5, 7, 8, 6, 7, 5], [3, 20, 5, 8, 12, 4, 6, 9])
print("\nthe engine, 64 slots:")
memories = {"2 regions of 32": (2, 32), "16 blocks of 4": (16, 4)}
whole = {"max_num_seqs": 8, "max_model_len": 32, "enable_chunked_prefill": False, "enable_prefix_caching": False}
for words, kind in {"static": StaticBatch, "iteration": Scheduler, "your reservation": MyReservation}.items():
    for memory, (num_blocks, size) in memories.items():
        run = run_both(requests, EngineConfig(num_blocks=num_blocks, block_size=size, **whole), kind)
        assert run.simulated == run.planned
        preempted = run.engine.stats().num_preemptions
        print(f"{words:<18}{memory:<16}{len(run.planned):3} steps, preemptions: {preempted}")

# %% [markdown] lang="en"
# Each alone serves more requests a second and shortens the wait. Together they help most. But paging alone makes larger static
# batches with longer steps: fewer requests meet the limits.
#
# Scheduling by iteration needs no paging, yet reserved memory leaves few seats to fill. Your reservation lies between: it promises
# what `max_tokens` says, and with one answer each never preempts.
#
# ## When it does nothing

# %% [markdown] lang="zh" en="1c7e6f3b"
# 单用其中一样，每秒完成的请求都会变多，等待都会变短；一起用，效果最好。不过，如果只加分页，静态批变大，每一步变长，满足限值的请求反而变少。
#
# 按迭代调度不需要分页。但预留的内存只容得下几个请求，席位再多也坐不满。你写的预留介于两者之间：它按 `max_tokens` 来承诺。每个请求只要一个回答时，它从不抢占。
#
# ## 什么时候毫无作用


# %% tags=["claim-nothing"]
def every(pause, answers):
    """Requests that come `pause` steps after each other."""
    return Trace("", tuple(TraceRequest(float(pause * i), 6, length) for i, length in enumerate(answers)))


cases = {
    "32 equal answers, 8 seats": (every(0, [64] * 32), 8),
    "as many seats as requests": (every(0, [4, 60, 20, 44]), 4),
    "one seat": (every(0, [4, 60, 20, 44]), 1),
    "the six users": (every(0, outputs), 4),
    "32 equal ones, every 8 steps": (every(8, [64] * 32), 8),
}
print(f"{'':<30}{'static':<24}continuous")
for words, (trace, seats) in cases.items():
    told = []
    for kind in (StaticBatch, Scheduler):
        of = EngineConfig(num_blocks=500, max_num_seqs=seats, enable_chunked_prefill=False, enable_prefix_caching=False)
        run = run_both(trace, of, kind)
        told.append(f"{len(run.planned)} steps, TTFT {statistics.mean(each.ttft for each in run.result.times()):.1f} s")
    print(f"{words:<30}{told[0]:<24}{told[1]}")

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# Equal answers that come at once, one seat, or a seat for everybody: there is no gap to fill. (With enough seats it still spares the
# padding.) But equal answers that come one by one do gain: who comes in the middle of a static batch waits for its end. So the gain
# comes from **different lengths and different arrivals**, where a queue forms.
#
# ## Exercise 12.5 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 25 minutes · about 20 lines
#
# Write tests that a broken scheduler cannot pass. Your function is given `make`: `make(max_num_seqs=2, num_blocks=8)` is a
# scheduler. Unless you say otherwise, it has 64 blocks of 4, four seats, 64 tokens a step and whole prompts. `watermark=0.25` keeps
# a quarter of the blocks free, except from one that runs alone. Fifteen broken ones wait, and three right ones.
#
# - `serve(scheduler, {"a": (3, 4), "b": (5, 2, 1)})` runs requests to their end, as in exercise 12.3. An answer may be 0. You get a
#   list of dicts: tokens of each request in each step.
# - `scheduler.kv.num_free_blocks` afterwards.
# - A **watchdog** ends what never ends: `NoProgressError`, and that counts as caught.
#
# Not sure what is right? Print `serve(make_scheduler(Scheduler), ...)`: the engine's own. Here is one of the fifteen, "prompts first":
#
# ```python
# def schedule_running(self, draft):
#     request = self.next_in_line()
#     if request is None or not self.may_start(request):
#         super().schedule_running(draft)
# ```

# %% [markdown] lang="zh" en="ec0fcce4"
# 回答一样长而且同时到达，只有一个席位，或者人人都有席位：没有空位可填。（人人都有席位时，它至少还省掉了填充。）但如果回答一样长、请求却是一个接一个到达的，就有好处：静态批跑到一半时才来的，要等整批结束。所以，在有人排队的前提下，好处来自**长短不一、到达有先有后**。
#
# ## 练习 12.5 - 找出 bug
#
# 难度 4/5 · 重要性 4/5 · 25 分钟 · 大约 20 行
#
# 写一些测试，让坏的调度器过不了。你的函数会拿到 `make`：`make(max_num_seqs=2, num_blocks=8)` 返回一个调度器。不另外指定的话，它有 64 个块，每块 4 个槽位，四个席位，每步 64 个 token，提示词一次算完。`watermark=0.25` 表示留出四分之一的块不用，独自在跑的请求除外。等着你的有十五个坏的和三个正确的。
#
# - `serve(scheduler, {"a": (3, 4), "b": (5, 2, 1)})` 把请求跑到结束，写法和练习 12.3 一样。回答的长度可以是 0。你会得到一个字典的列表：每一步里，每个请求有多少个 token。
# - 跑完之后看 `scheduler.kv.num_free_blocks`。
# - 停不下来的运行，由一只**看门狗**（watchdog）终止：它抛出 `NoProgressError`，这也算抓住了。
#
# 拿不准怎样才对？打印 `serve(make_scheduler(Scheduler), ...)`，那是引擎自己的调度器。下面是十五个中的一个，“prompts first”：
#
# ```python
# def schedule_running(self, draft):
#     request = self.next_in_line()
#     if request is None or not self.may_start(request):
#         super().schedule_running(draft)
# ```


# %% exercise="my_tests"
def my_tests(make):
    """Raise AssertionError if the schedulers made by make(**options) are broken."""
    ### BEGIN SOLUTION
    steps = serve(make(), {"a": (3, 4), "b": (2, 3), "c": (5, 2, 1)})
    assert steps == [{"a": 3, "b": 2}, {"a": 1, "b": 1, "c": 5}, {"a": 1, "b": 1, "c": 1}, {"a": 1}]
    steps = serve(make(max_num_seqs=2), {"a": (2, 1), "b": (3, 4), "c": (4, 2), "d": (2, 1), "e": (2, 2)})
    assert [sorted(step) for step in steps] == [["a", "b"], ["b", "c"], ["b", "c"], ["b", "d"], ["e"], ["e"]]
    steps = serve(make(max_num_batched_tokens=10), {"a": (6, 1), "b": (6, 1), "c": (2, 1)})
    assert steps == [{"a": 6}, {"b": 6, "c": 2}]  # c does not overtake
    steps = serve(make(max_num_seqs=2), {"a": (4, 2, 0, 2), "b": (3, 1)})
    assert steps == [{"a": 4}, {"a": 1, "a.1": 1}, {"b": 3}]  # two answers, two seats
    assert serve(make(num_blocks=4, watermark=0.25), {"a": (14, 2)}) == [{"a": 14}, {"a": 1}]
    scheduler = make(num_blocks=8)
    serve(scheduler, {"a": (4, 3), "b": (4, 3), "c": (4, 0)})  # c asks for nothing, and ends
    assert scheduler.kv.num_free_blocks == 8
    ### END SOLUTION


# %% test="my_tests" points=3
my_tests = bugs_caught(my_tests, "12")

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Work out a small run by hand, and compare all of its steps. For each bug that got away, the check says where to look.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Who joins when? Who gets a token in each step? How many seats, how many tokens, in which order? What is left at the end?
#
# </details>
# <details><summary>Hint 3: a right scheduler is refused</summary>
#
# Order within a step says nothing: compare dicts.
#
# </details>
#
# ## Serve a real model
#
# Your scheduler and our toy model, trained on old novels: five users, two seats.

# %% [markdown] lang="zh" en="6045d1cc"
# <details><summary>提示 1：从哪里入手</summary>
#
# 先用手推演一次小的运行，再把每一步都拿来比较。每个漏网的 bug，检查都会告诉你该看哪里。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 谁在什么时候加入？每一步里谁拿到 token？占了几个席位，用了多少个 token，按什么顺序？最后剩下什么？
#
# </details>
# <details><summary>提示 3：正确的调度器被拒绝了</summary>
#
# 同一步里的先后没有意义：直接比较字典。
#
# </details>
#
# ## 放到真实的模型上
#
# 你的调度器，加上我们用老小说训练出来的玩具模型：五个用户，两个席位。

# %% tags=["claim-serve"]
llm = LLM("tiny-gqa", backend="numpy", num_blocks=64, scheduler=MyScheduler, record=True, max_num_seqs=2)
starts = ["The morning was", "She looked at", "He said that", "It was a", "They went"]
params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (4, 16, 8, 12, 6)]
answers = llm.generate(starts, params, progress=False)
alone = LLM("tiny-gqa", backend="numpy", num_blocks=64)
assert [a.outputs[0].token_ids for a in answers] == [
    alone.generate(start, of, progress=False)[0].outputs[0].token_ids for start, of in zip(starts, params)
]
for answer in answers:
    print(f"{answer.prompt}|{answer.outputs[0].text!r}")
print(timeline(llm))

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself

# %% [markdown] lang="zh" en="8f45d9d8"
# ## 自测
#
# 第一问：32 个请求同时到达，8 个席位，每个回答 64 个 token。静态批需要 4 × 64 = 256 步。连续批处理需要多少步？
#
# 第二问：两个席位，a、b、c、d 同时到达，回答分别是 7、2、3、4 个 token。如果席位一空出来就马上用上，d 在多少步之后拿到最后一个 token？

# %% tags=["self-check"]
predict("12.equal", value=None)
predict("12.who_waits", value=None)

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Names as of 2026: the main branches of vLLM and SGLang.
#
# | here | vLLM | SGLang |
# |---|---|---|
# | `schedule()` | `Scheduler.schedule` in `vllm/v1/core/sched/scheduler.py` | `Scheduler.get_next_batch_to_run` |
# | running first, then waiting | the same order, one token budget | a prefill batch first, else decode; both with `--enable-mixed-chunk` |
# | seats | `--max-num-seqs` | `--max-running-requests` |
# | budget of a step | `--max-num-batched-tokens` | `--max-prefill-tokens`, `--chunked-prefill-size` |
# | who starts next | `--scheduling-policy`: `fcfs`, `priority` | `--schedule-policy`: `fcfs`, `lpm` and more |
#
# vLLM V1 says it in a comment of its scheduler: there is no prefill phase and no decode phase, only tokens that are computed and
# tokens that are known.
#
# > **What this does not show**
# >
# > - A GPU. The simulated times are a roofline's, with stated constants, without network or kernel details.
# > - The price of a decision. A scheduler in Python takes time in every step, and the GPU waits for it.
# > - Fairness. First come, first served lets one user with many requests fill the queue.

# %% [markdown] lang="zh" en="0a7c00c2"
# ## 在生产系统中
#
# 名称以 2026 年 vLLM 和 SGLang 的 main 分支为准。
#
# | 本课 | vLLM | SGLang |
# |---|---|---|
# | `schedule()` | `vllm/v1/core/sched/scheduler.py` 里的 `Scheduler.schedule` | `Scheduler.get_next_batch_to_run` |
# | 先在跑的，后在等的 | 顺序相同，共用一份 token 预算 | 有新的预填充批就先跑它，否则解码；用 `--enable-mixed-chunk` 则一起跑 |
# | 席位 | `--max-num-seqs` | `--max-running-requests` |
# | 一步的预算 | `--max-num-batched-tokens` | `--max-prefill-tokens`、`--chunked-prefill-size` |
# | 下一个轮到谁 | `--scheduling-policy`：`fcfs`、`priority` | `--schedule-policy`：`fcfs`、`lpm` 等 |
#
# vLLM V1 的调度器里有一段注释说：没有预填充阶段，也没有解码阶段，只有已经算过的 token 和已经知道的 token。
#
# > **这一课没有说明的事**
# >
# > - 真实的 GPU。模拟的时间来自屋顶线模型，常数都写明了，不含网络，也不含 kernel 的细节。
# > - 做决定的代价。用 Python 写的调度器，每一步都要花时间，GPU 只能等着。
# > - 公平。先来先服务，意味着一个用户可以用大量请求把队伍占满。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Does batching change my answer?</summary>
#
# Not the mathematics: rows meet in no formula. On a GPU a different batch size may pick another kernel, with other rounding. At a
# near-tie another token may win.
#
# </details>
# <details><summary>Why not start as many as there are?</summary>
#
# Each needs blocks until its end, and each makes a step longer. With too many, ITL grows and blocks run out in the middle: then
# somebody is preempted (lesson 14).
#
# </details>
# <details><summary>Why is the first in line never overtaken?</summary>
#
# A long prompt needs much room at once. If short ones may pass, it waits for ever.
#
# </details>

# %% [markdown] lang="zh" en="6f24c5ee"
# ## 常见问题
#
# <details><summary>批处理会改变我的回答吗？</summary>
#
# 从数学上说不会：没有哪个公式把两行混在一起。在 GPU 上，批大小变了，选用的 kernel 可能不同，舍入也就不同。两个 token 几乎打平时，胜出的可能是另一个。
#
# </details>
# <details><summary>为什么不是来多少就开始多少？</summary>
#
# 每个请求直到结束都要占块，也会让每一步变长。开始得太多，ITL 会变大，块会半路用完：那时就得抢占某个请求（第 14 课）。
#
# </details>
# <details><summary>为什么谁也不能超过队首？</summary>
#
# 长提示词一次就要很多空间。如果短的可以先过，它可能永远等下去。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A static batch waits for its longest answer: computed for nobody, and everybody else in the queue.
# - Decide at every step: a token for all who run, then start who fits into seats, blocks and budget, in order.
# - ITL is a latency, throughput is a rate, and a factor without its workload is no fact.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | static batching | 静态批处理 | "batching" | a batch starts together and ends together |
# | continuous batching | 连续批处理 | "in-flight batching" | who runs is decided at every step |
# | iteration | 迭代 | "step" | one forward pass over all who run |
# | TTFT | 首 token 延迟 | "latency" | arrival to first token |
# | ITL | token 间延迟 | "throughput", wrongly | the gap between two tokens |
# | goodput | 有效吞吐 | "throughput under SLO" | requests per second that meet every limit |
#
# **Open exercises.** *Easy:* how many seats give the best goodput in "Three units"? *Medium:* a scheduler that lets a short prompt
# overtake at most three times. *Research:* predict answer lengths, schedule the shortest first, and find who pays.
#
# **Back:** [11 · Triton MLA decode kernel](lessons/11_triton_mla.ipynb) · **Next:** [13 · Chunked prefill](lessons/13_chunked_prefill.ipynb)

# %% [markdown] lang="zh" en="2ff1b2ac"
# ## 三句话总结
#
# - 静态批要等最长的回答：结束了的行还在白算，其余的人还在排队。
# - 每一步都重新决定：先给每个在跑的请求一个 token；只要席位、块和预算都够，再按顺序让在等的开始。
# - ITL 是延迟，吞吐量是速率；不说明工作负载，倍数就不算事实。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | 静态批处理 | static batching | “batching” | 一批请求同时开始，同时结束 |
# | 连续批处理 | continuous batching | “in-flight batching” | 每一步都决定谁来跑 |
# | 迭代 | iteration | “step” | 所有在跑的请求一起过一遍模型 |
# | 首 token 延迟 | TTFT | “latency” | 从到达到第一个 token |
# | token 间延迟 | ITL | “throughput”，这是错的 | 相邻两个 token 之间的间隔 |
# | 有效吞吐 | goodput | “throughput under SLO” | 每秒有多少个请求满足所有限值 |
#
# **开放练习。** *简单*：在“三种单位”里，多少个席位的有效吞吐最好？*中等*：写一个调度器，让短提示词最多插队三次。*研究*：预测回答的长度，先调度最短的，看看代价由谁承担。
#
# **上一课：** [11 · Triton MLA 解码 kernel](lessons/11_triton_mla.ipynb) · **下一课：** [13 · 分块预填充](lessons/13_chunked_prefill.ipynb)
