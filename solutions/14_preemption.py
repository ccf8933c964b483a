# %% [markdown] lang="en" tags=["goals"]
# # 14 · Preemption
#
# **The pool is full in the middle of two answers. Who goes, and how does it come back?**
#
# 90 to 120 minutes · plain Python, no GPU · after lessons 03, 07 and 09
#
# After this lesson you can
#
# - choose a victim, make room, and bring the victim back so that nobody can tell from its text;
# - show two requests that preempt each other for ever, and say why a good scheduler never does;
# - say from the bandwidth of the bus whether swapping or computing again is faster, and when neither is right.

# %% [markdown] lang="zh" en="823c738c"
# # 14 · 抢占
#
# **两个回答说到一半，池子满了。谁让出位置，又怎么回来？**
#
# 90 到 120 分钟 · 纯 Python，不需要 GPU · 先学第 03、07 和 09 课
#
# 学完这一课，你能够：
#
# - 选出受害者，腾出空间，再把它请回来，而且从文本上谁也看不出来；
# - 演示两个请求如何无休止地互相抢占，并说清好的调度器为什么绝不会这样；
# - 根据总线带宽判断：换出再换入快，还是重算快；什么时候两样都不该选。

# %%
import time
from fractions import Fraction

import numpy as np

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.backends import AuditBackend
from mini_engine.cache import NoFreeBlocksError
from mini_engine.course import bugs_caught, check, panel, picture, predict, svg
from mini_engine.course.film import film, frame
from mini_engine.course.panels import p14_preemption as pictures
from mini_engine.course.tight_pool import Run, Stuck, prompt_of, serve
from mini_engine.course.timeline import timeline
from mini_engine.geometry import active_params, kv_bytes_per_token
from mini_engine.roofline import block_copy_bytes, effective_pcie
from mini_engine.scheduling import RequestStatus, Scheduler
from mini_engine.simulator import summarize

# %% [markdown] lang="en"
# ## The pain
#
# Two requests, 8 tokens each, start in a pool of six blocks of 4. They take four blocks, and two are free. Both are answered
# with 12 tokens. Here is a scheduler that takes blocks while there are some, and knows nothing else.
#
# `serve` runs a scheduler in the engine. The requests are called a, b, c. It needs the lengths of prompts and answers.

# %% [markdown] lang="zh" en="e16abd24"
# ## 痛点
#
# 两个请求，提示词各 8 个 token，在一个有六个块、每块 4 个槽位的池子里开始。它们占了四个块，还空着两个。两个回答都是 12 个 token。下面的调度器有块就拿，别的一概不懂。
#
# `serve` 让一个调度器在引擎里跑起来。请求依次叫 a、b、c。它只需要知道提示词和回答的长度。


# %% tags=["claim-pain"]
class Helpless(Scheduler):
    def make_room(self, request, num_tokens, position, draft):
        draft.cache_ops += self.kv.append(request, num_tokens)
        return True


two, run = [(8, 12), (8, 12)], Run()
try:
    serve(Helpless, two, num_blocks=6, run=run)
except NoFreeBlocksError as error:
    print(f"step {len(run.steps)}: {str(error)[:33]}")
print("said so far:", ", ".join(f"{name} {len(tokens)} of 12" for name, tokens in run.tokens.items()))
print(timeline(run.engine))

# %% [markdown] lang="en"
# A user has read five tokens, and then nothing. Each request fits alone: it needs 19 slots, five blocks. Together they need
# ten.
#
# Nobody could know: the length of an answer is known when it ends. A guess about another pool:

# %% [markdown] lang="zh" en="1af4599e"
# 用户读了五个 token，然后就没有下文了。单独来看，每个请求都放得下：它要 19 个槽位，也就是五个块。两个一起就要十个块。
#
# 这事谁也没法预先知道：回答有多长，要等它结束才知道。换一个池子，先猜一猜：两个提示词各有 100 个 token，没有相同的部分，一起开始，池子有 20 个块，每块 16 个槽位。等到缺块的那一刻，每个请求已经得到了几个回答 token？

# %%
predict("14.full", value=None)

# %% [markdown] lang="en"
# Somebody has to give up blocks, in the middle of an answer. That is **preemption**. The victim comes back later:

# %% [markdown] lang="zh" en="629310a4"
# 总得有一个请求在回答的中途让出它的块。这就是**抢占**（preemption）。被抢占的叫**受害者**（victim），它以后还会回来：

# %% tags=["diagram"]
svg(*pictures.life())

# %% [markdown] lang="en"
# ## Who goes?
#
# The one that **started last** (LIFO). As a rule it has the least to lose, and whoever came first is done first. If requests
# have priorities, the least important goes before all others. (In the engine they count with `policy="priority"`.)
#
# ## Exercise 14.1 - choose a victim
#
# Difficulty 1/5 · importance 4/5 · 10 minutes · about 1 line
#
# Write `pick_victim(self, running)`.
#
# - `running` holds requests in the order in which they started. It is never empty. Return one of them.
# - The least important goes: the largest `request.priority`. Of equals, the one that started last.
# - Only choose. Change neither the list nor a request.
#
# Small case: a, b, c with priorities 0, 3, 3: c goes.

# %% [markdown] lang="zh" en="8bbd06c0"
# ## 谁先走？
#
# **最后开始**的那个先走（后进先出，LIFO）。一般来说，它的损失最小，而先来的可以先做完。如果请求有优先级，最不重要的最先走。（在引擎里，要设 `policy="priority"`，优先级才起作用。）
#
# ## 练习 14.1 - 选出受害者
#
# 难度 1/5 · 重要性 4/5 · 10 分钟 · 大约 1 行
#
# 写出 `pick_victim(self, running)`。
#
# - `running` 里是请求，按开始的先后排列，从不为空。返回其中一个。
# - 最不重要的先走：`request.priority` 最大的那个。一样大时，选最后开始的。
# - 只管选：不要改列表，也不要改请求。
#
# 小例子：a、b、c 的优先级是 0、3、3，走的是 c。


# %% exercise="MyVictim"
class MyVictim(Scheduler):
    def pick_victim(self, running):
        """Which of the running sequences gives up its blocks."""
        ### BEGIN SOLUTION
        return max(reversed(running), key=lambda request: request.priority)
        ### END SOLUTION


# %% test="MyVictim" points=1
MyVictim = check("14.victim", MyVictim)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `max` with a `key`. Of equals it returns the first that it meets.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Walk from the end: `reversed(running)`. Then the first of equals is the one that started last.
#
# </details>
# <details><summary>Hint 3: "it only chooses" fails</summary>
#
# `pop` and `sort` change the list. `reversed` and `sorted` do not.
#
# </details>
#
# ## Make room
#
# A step serves the running requests in order. Those before `position` have their tokens of this step, and will compute on
# their blocks. So victims come from `position` on, the asking request included.
#
# ## Exercise 14.2 - make room
#
# Difficulty 3/5 · importance 5/5 · 20 minutes · about 12 lines
#
# Write `make_room(self, request, num_tokens, position, draft)`. It returns True when the request has its blocks, False when
# it has none and runs no longer.
#
# - `self.kv.append(request, num_tokens)` takes blocks. It returns copies, which belong at the end of the list
#   `draft.cache_ops`: they are made in order. Or it raises `NoFreeBlocksError`, and nothing has changed.
# - Then ask `self.pick_victim(...)`, and call `self.preempt(victim, draft)`. Go on until it works.
# - The victim may be the request itself. Then stop.
# - If nobody else is in `self.running`, it has the whole pool, and needs more. Call `self.end(request)`. It will finish with
#   the reason "capacity".
#
# Small case: a, b, c run, and b needs a block: c goes, or b.

# %% [markdown] lang="zh" en="92b80c30"
# <details><summary>提示 1：从哪里入手</summary>
#
# 用带 `key` 的 `max`。有几个一样大时，它返回最先遇到的那个。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 从末尾往前走：`reversed(running)`。这样，一样大的几个里最先遇到的，就是最后开始的。
#
# </details>
# <details><summary>提示 3：“it only chooses”这一项不通过</summary>
#
# `pop` 和 `sort` 会改列表，`reversed` 和 `sorted` 不会。
#
# </details>
#
# ## 腾出空间
#
# 一步里，正在运行的请求按顺序轮流领块。排在 `position` 前面的，这一步的 token 已经安排好了，马上要在自己的块上计算。所以受害者只能从 `position` 开始往后选，正在要块的请求自己也算在内。
#
# ## 练习 14.2 - 腾出空间
#
# 难度 3/5 · 重要性 5/5 · 20 分钟 · 大约 12 行
#
# 写出 `make_room(self, request, num_tokens, position, draft)`。请求拿到块就返回 True；没拿到、也不再运行，就返回 False。
#
# - `self.kv.append(request, num_tokens)` 去拿块。它返回要做的拷贝，把它们加到列表 `draft.cache_ops` 的末尾：拷贝按顺序执行。拿不到就抛出 `NoFreeBlocksError`，这时什么都没有变。
# - 拿不到就调用 `self.pick_victim(...)` 选一个，再调用 `self.preempt(victim, draft)`。一直做到拿到为止。
# - 受害者可能就是请求自己。那就到此为止。
# - 如果 `self.running` 里没有别人，说明整个池子都归它，却还是不够。调用 `self.end(request)`，它就以“capacity”为原因结束。
#
# 小例子：a、b、c 在运行，b 需要一个块：走的是 c，或者是 b 自己。


# %% exercise="MyRoom"
class MyRoom(Scheduler):
    def make_room(self, request, num_tokens, position, draft):
        """Blocks for the next tokens, if need be from those not served yet."""
        ### BEGIN SOLUTION
        while True:
            try:
                draft.cache_ops += self.kv.append(request, num_tokens)
                return True
            except NoFreeBlocksError:
                if len(self.running) == 1:
                    self.end(request)
                    return False
            victim = self.pick_victim(self.running[position:])
            self.preempt(victim, draft)
            if victim is request:
                return False
        ### END SOLUTION


# %% test="MyRoom" points=3
MyRoom = check("14.make_room", MyRoom)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# A `while True` around a `try`. Three ways lead out: there was room, it was alone, it went itself.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Try `append`, and return True. On the error: alone? End it, return False. Else choose among `self.running[position:]`, and
# preempt. Was it the request? Return False. Else try again.
#
# </details>
# <details><summary>Hint 3: "it goes on until there is room" fails</summary>
#
# One victim may hold one block where two are needed. Loop.
#
# </details>
#
# ## For ever
#
# Is it fair that the first keeps its blocks? Here is a polite scheduler: whoever waits gets the blocks of whoever runs. Two
# prompts of 24 tokens do not fit together, and a step computes 8 tokens.

# %% [markdown] lang="zh" en="3798aafd"
# <details><summary>提示 1：从哪里入手</summary>
#
# `while True` 里面套一个 `try`。有三条路可以出来：有空间了；只剩它一个；走的是它自己。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 先试 `append`，成功就返回 True。出错时，只剩它一个吗？是就结束它，返回 False。否则在 `self.running[position:]` 里选一个，抢占它。选中的就是请求自己吗？是就返回 False。否则再试一次。
#
# </details>
# <details><summary>提示 3：“it goes on until there is room”这一项不通过</summary>
#
# 需要两个块时，一个受害者也许只有一个块。要循环。
#
# </details>
#
# ## 没完没了
#
# 先来的一直占着块，公平吗？下面是一个有礼貌的调度器：谁在等，就把正在运行的请求的块让给谁。两个提示词各 24 个 token，一起放不下，而一步只算 8 个 token。


# %% tags=["claim-livelock"]
class AfterYou(Scheduler):
    def schedule_running(self, draft):
        if self.waiting and self.running and not self.admit(self.waiting.first()):
            next_one = self.waiting.first()
            for request in list(self.running):
                self.preempt(request, draft)
            self.start(next_one, draft)
        else:
            super().schedule_running(draft)


long, tight = [(24, 2), (24, 2)], {"max_num_batched_tokens": 8, "enable_prefix_caching": False}
run = Run()
try:
    serve(AfterYou, long, num_blocks=8, run=run, **tight)
except Stuck as error:
    print(error)
print(run.trace(4))
print(
    f"{run.num_preemptions} preemptions, {run.num_computed} tokens computed, {sum(map(len, run.tokens.values()))} said"
)
ours = serve(Scheduler, long, num_blocks=8, **tight)
print(f"the engine's own: done in {len(ours.steps)} steps, {ours.num_preemptions} preemptions")
print(timeline(ours.engine))

# %% [markdown] lang="en"
# That is a **livelock**: everybody works, nobody gets anywhere. `serve` has a watchdog, which gives up after more than 60 steps
# without a token.
#
# Ours progresses, and the reason is short. Nobody who waits takes from those who run. The first in `running` can take the blocks
# of all others, and nobody takes its own. So the first always moves on, until it ends. Then there is another first. With
# `policy="priority"` the most important stands first, and the same holds.
#
# ## Way one: compute again
#
# The victim's blocks are freed, and its tokens are kept. When it returns, prompt and answer so far are **one prompt**. How
# much work is that?

# %% [markdown] lang="zh" en="21479875"
# 这就是**活锁**（livelock）：人人都在忙，谁也没有进展。`serve` 里有一个看门狗，连续超过 60 步没有产出 token 就放弃。
#
# 我们的调度器会有进展，道理很简单。正在等的，不能从正在运行的那里拿块。`running` 里排第一的可以拿走其他所有人的块，却没有人能拿它的。所以排第一的总能前进，直到结束。然后轮到下一个排第一。设了 `policy="priority"`，排第一的就是最重要的那个，道理一样。
#
# ## 办法一：重算
#
# 受害者的块释放掉，token 留着。等它回来，提示词和已有的回答合成**一个提示词**。要算多少？猜一猜：一个请求的提示词有 100 个 token，已经回答了 61 个，这时以重算方式被抢占，没有前缀缓存。它回来以后，在说出下一个 token 之前，要算多少个 token？

# %%
predict("14.again", value=None)

# %% [markdown] lang="en"
# ## Exercise 14.3 - preempt by recompute
#
# Difficulty 2/5 · importance 5/5 · 15 minutes · about 7 lines
#
# Write `preempt(self, victim, draft)`.
#
# - Take it out of the list `self.running`, which stays the same list.
# - `self.kv.free(victim)` gives its blocks back. None of its tokens counts as computed any more: `victim.num_computed_tokens`.
# - Its `status` is `RequestStatus.PREEMPTED`. All its tokens stay.
# - `self.waiting.add(victim)` puts it into the queue, by its arrival: in front of all that never started.
# - Append it to the plan's list `draft.preempted`, and add 1 to the counter `self.counters.num_preemptions`.

# %% [markdown] lang="zh" en="80af7835"
# ## 练习 14.3 - 以重算方式抢占
#
# 难度 2/5 · 重要性 5/5 · 15 分钟 · 大约 7 行
#
# 写出 `preempt(self, victim, draft)`。
#
# - 把它从列表 `self.running` 里拿掉，列表本身不要换成新的。
# - `self.kv.free(victim)` 归还它的块。这样，它的 token 一个也不算“已经算过”了：`victim.num_computed_tokens`。
# - 它的 `status` 是 `RequestStatus.PREEMPTED`。所有 token 都留着。
# - `self.waiting.add(victim)` 把它按到达时间放进队列：排在所有从没开始过的请求前面。
# - 把它追加到计划的列表 `draft.preempted` 里，再把计数器 `self.counters.num_preemptions` 加 1。


# %% exercise="MyPreempt"
class MyPreempt(Scheduler):
    def preempt(self, victim, draft):
        """Take the blocks of a running sequence; it waits in front of those that have not started yet."""
        ### BEGIN SOLUTION
        self.running.remove(victim)
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.add(victim)
        draft.preempted.append(victim)
        self.counters.num_preemptions += 1
        ### END SOLUTION


# %% test="MyPreempt" points=2
MyPreempt = check("14.recompute", MyPreempt)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# One line for each thing that the bullets name.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# remove, free, 0, PREEMPTED, add, append, += 1.
#
# </details>
# <details><summary>Hint 3: "no token is lost" fails</summary>
#
# Leave `token_ids` and `num_prompt_tokens` alone. The newest token has no K and V, but the user has read it.
#
# </details>
#
# ## Nobody can tell
#
# Your three methods make a scheduler. It goes into the engine with one argument. Four prompts of 120 tokens are answered with
# 60, by a model. In 400 blocks nobody has to go; 40 are too few.

# %% [markdown] lang="zh" en="b800683c"
# <details><summary>提示 1：从哪里入手</summary>
#
# 上面列的每一件事，各写一行。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# remove、free、0、PREEMPTED、add、append、+= 1。
#
# </details>
# <details><summary>提示 3：“no token is lost”这一项不通过</summary>
#
# 不要动 `token_ids` 和 `num_prompt_tokens`。最新的 token 还没有 K 和 V，但用户已经读到了。
#
# </details>
#
# ## 谁也看不出来
#
# 你的三个方法合成一个调度器，用一个参数就能放进引擎。四个提示词，各 120 个 token，由模型各回答 60 个 token。有 400 个块时谁也不用走；40 个块就不够了。


# %% tags=["claim-same-text", "claim-prefix"]
class MyScheduler(MyVictim, MyRoom, MyPreempt):
    pass


prompts = [[(13 * i * i + 7 * who) % 2000 for i in range(120)] for who in range(4)]
greedy = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


def texts(**options):
    llm = LLM("tiny-gqa", backend="numpy", **options)
    answers = [output.outputs[0].text for output in llm.generate(prompts, greedy, progress=False)]
    return answers, llm.engine.stats()


ample, before = texts(num_blocks=400)
print(f"{'400 blocks':<22}preemptions {before.num_preemptions}, prompt tokens computed {before.num_prefill_tokens}")
for words, options in (("40 blocks", {}), ("40, no prefix cache", {"enable_prefix_caching": False})):
    answers, stats = texts(num_blocks=40, scheduler=MyScheduler, **options)
    assert answers == ample
    print(
        f"{words:<22}preemptions {stats.num_preemptions}, prompt tokens computed {stats.num_prefill_tokens}, same text"
    )

# %% [markdown] lang="en"
# The text is the same, to the last letter. A prefix cache makes the return cheaper: freed blocks are found until somebody
# needs them (lesson 09). In a full pool somebody soon does.
#
# ## Watch it
#
# The first two requests again, with your scheduler. The rows show who computes what, the film shows the blocks. There a and b
# are written A and B.

# %% [markdown] lang="zh" en="41fe2fc1"
# 文本完全一样，一字不差。有前缀缓存时，回来的代价更小：释放的块，在别人要用之前还能找到（第 09 课）。只是池子满的时候，别人很快就要用。
#
# ## 亲眼看一看
#
# 还是最初那两个请求，换成你的调度器。时间线的每一行显示谁在计算什么，动画显示每个块；在动画里，a 和 b 写作 A 和 B。

# %%
watched = serve(MyScheduler, two, num_blocks=6).engine
print(timeline(watched))
film(watched)

# %% tags=["claim-film", "claim-three-ways"]
lost = -(-(8 + 5 - 1) // 4)  # 8 of the prompt, 5 said, the newest without K and V; blocks of 4
event = next(event for event in watched.film if event["kind"] == "step" and event["preempted"])
freed = watched.film[watched.film.index(event) - 1]["sequences"][1]["block_table"]
words = frame(watched, event["step"]).words.split(": ", 1)[1].split(".")[0]
print(f"formula: {lost} blocks; engine: b had blocks {freed}")
print(f"picture: {words}".removesuffix(" and will be computed again"))
assert lost == len(freed)
assert all(str(block) in words for block in freed)
frame(watched, event["step"])

# %% [markdown] lang="en"
# ## Way two: swap
#
# Computing again throws work away. K and V could move to **host memory** instead, into a pool of blocks there, and come back
# later. On a GPU that memory is pinned, and the copies run beside the computing. Two orders must hold: a block is copied out
# before somebody else writes it, and copied in before its request computes.
#
# `swap_out` and `swap_in` only plan the copies. The backend makes them, in order. Is every byte the same afterwards? And which
# way is faster on this machine, for 480 tokens?

# %% [markdown] lang="zh" en="827c3582"
# ## 办法二：换出，再换入
#
# 重算等于把做好的工作扔掉。K 和 V 也可以搬到**主机内存**里的另一个块池，以后再搬回来。在 GPU 上，这块内存是锁页内存（pinned memory），拷贝与计算同时进行。有两个先后顺序必须保证：别人写一个块之前，要先把它拷出去；请求开始计算之前，要先把它的块拷回来。
#
# `swap_out` 和 `swap_in` 只把拷贝记进计划，由后端按顺序执行。一来一回之后，每个字节都一样吗？在这台机器上，480 个 token 用哪种办法更快？

# %% tags=["claim-round-trip", "claim-measured", "nbval-ignore-output"]
engine = LLM("tiny-gqa", backend="numpy", num_blocks=40, preemption="swap", num_swap_blocks=40).engine
backend, kv = engine.backend, engine.kv_manager
engine.add_request("a", [(31 * i * i) % 2000 for i in range(480)], greedy)
begin = time.perf_counter()
engine.step()
again = time.perf_counter() - begin
(request,) = engine.scheduler.running
kept = [backend.block(block) for block in request.block_table]
begin = time.perf_counter()
backend.apply_ops(kv.swap_out(request))
for pool in backend.pools.values():
    pool[:] = np.nan  # whoever comes next overwrites everything
backend.apply_ops(ops := kv.swap_in(request))
moved = time.perf_counter() - begin
for block, old in zip(request.block_table, kept):
    assert all(backend.block(block)[name].tobytes() == old[name].tobytes() for name in old)
print(
    f"{len(ops)} blocks, {sum(old[name].nbytes for old in kept for name in old):,} bytes: all the same after the round trip"
)
print(f"computing 480 tokens: {again * 1000:.0f} ms; out and in: {moved * 1000:.1f} ms")

# %% [markdown] lang="en"
# Here "host" and "device" are the same memory, so this only says: a copy is cheap where computing is slow. If the host pool
# is full, the victim is computed again.
#
# ## Which is faster?
#
# On a GPU, a bus lies in between (**PCIe**). "Recompute is often faster than offload when PCIe is limited", you will
# read. Is it? Two guesses:

# %% [markdown] lang="zh" en="80670608"
# 这里的“主机”和“设备”是同一块内存，所以这只说明：在计算慢的地方，拷贝很便宜。主机池子满了，受害者就改为重算。
#
# ## 哪种更快？
#
# 在 GPU 上，中间隔着一条总线（**PCIe**）。你会读到：“PCIe 受限时，重算往往比换出更快。”真是这样吗？先猜两个数。第一问：模型的每个 token 要存 131,072 个字节，链路的速率（以 GB/s 计）每个方向都是 32。把一个长 8,192 个 token 的请求换出再换入，要多少毫秒？第二问：这 8,192 个 token 放在每块 16 个槽位的块里，模型有 32 层，每层的 K 和 V 分开放。换出时一共要拷贝多少片？

# %%
predict("14.swap", value=None)
predict("14.copies", value=None)

# %% [markdown] lang="en"
# Both ways have a time per token, if we leave out attention, which is small for short requests:
#
# $$t_\text{swap} = \frac{2 \cdot \text{kv bytes}}{\text{rate}} \qquad t_\text{again} = \frac{2 \cdot \text{parameters}}{\text{peak} \cdot \text{MFU}}$$
#
# A multiplication and an addition for each parameter. **MFU** is the share of the peak that is reached.
#
# ## Exercise 14.4 - the break-even
#
# Difficulty 2/5 · importance 4/5 · 10 minutes · about 2 lines
#
# Write `break_even(kv_bytes, params, peak, mfu, gpus=1)`: the bytes/s of **one** GPU's link at which both take as long.
#
# - `kv_bytes` are the bytes of a token's K and V, on all GPUs together. `params` are the parameters that compute.
# - `peak` is the FLOP/s of one GPU. All GPUs compute, each its part. All copy, each over its own link.
#
# Small case: 10 bytes, 5 parameters, a peak of 100 FLOP/s at MFU 1, one GPU: 200 bytes/s.

# %% [markdown] lang="zh" en="49315a34"
# 请求不长时，注意力占的比例很小。不算它，两种办法每个 token 的用时是：
#
# $$t_\text{swap} = \frac{2 \cdot \text{kv bytes}}{\text{rate}} \qquad t_\text{again} = \frac{2 \cdot \text{parameters}}{\text{peak} \cdot \text{MFU}}$$
#
# 重算时，每个参数要做一次乘法和一次加法。**MFU** 是实际用到峰值算力的比例。
#
# ## 练习 14.4 - 平衡点
#
# 难度 2/5 · 重要性 4/5 · 10 分钟 · 大约 2 行
#
# 写出 `break_even(kv_bytes, params, peak, mfu, gpus=1)`：**一块** GPU 的链路达到多少 bytes/s 时，两种办法用时相同。
#
# - `kv_bytes` 是一个 token 的 K 和 V 的字节数，所有 GPU 合计。`params` 是参与计算的参数个数。
# - `peak` 是一块 GPU 的 FLOP/s。所有 GPU 一起算，各算一份；也一起拷贝，各走各的链路。
#
# 小例子：10 字节，5 个参数，峰值 100 FLOP/s，MFU 为 1，一块 GPU：200 bytes/s。


# %% exercise="break_even"
def break_even(kv_bytes, params, peak, mfu, gpus=1):
    """Bytes/s over the link of each GPU at which a swap, out and in, takes as long as computing again."""
    ### BEGIN SOLUTION
    seconds = 2 * params / (gpus * peak * mfu)
    return 2 * kv_bytes / gpus / seconds
    ### END SOLUTION


# %% test="break_even" points=1
break_even = check("14.break_even", break_even)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Set both times equal, and solve for the rate.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Seconds to compute a token: `2 * params / (gpus * peak * mfu)`. Bytes over one link: `2 * kv_bytes / gpus`. Divide.
#
# </details>
# <details><summary>Hint 3: "each GPU computes its part" fails</summary>
#
# Twice as many GPUs compute twice as fast, and copy over twice as many links. What is left of `gpus`?
#
# </details>

# %% [markdown] lang="zh" en="5fd7f1af"
# <details><summary>提示 1：从哪里入手</summary>
#
# 令两个时间相等，解出速率。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 算一个 token 的秒数：`2 * params / (gpus * peak * mfu)`。一条链路上的字节数：`2 * kv_bytes / gpus`。两者相除。
#
# </details>
# <details><summary>提示 3：“each GPU computes its part”这一项不通过</summary>
#
# GPU 多一倍，算得快一倍，拷贝的链路也多一倍。`gpus` 还剩下什么？
#
# </details>

# %% tags=["claim-break-even", "claim-copies"]
print("8,192 tokens, ms            swap, GB/s        again, MFU     break-even at 50%")
print("                            32      64        50%     100%    GB/s a link")
for words, (name, gpu, gpus) in pictures.MACHINES.items():
    spec, peak = get_model(name), get_gpu(gpu).bf16_flops
    swap = [1000 * pictures.times(words, 8192, rate * 10**9).swap for rate in (32, 64)]
    again = [1000 * pictures.times(words, 8192, 32 * 10**9, mfu).recompute for mfu in (50, 100)]
    rate = break_even(kv_bytes_per_token(spec), active_params(spec), float(peak), 0.5, gpus) / 1e9
    print(f"{words:<24}{swap[0]:10.1f}{swap[1]:8.1f}{again[0]:9.1f}{again[1]:9.1f}{rate:12.2f}")
print()
spec = get_model("llama-3-8b")
print("if each copy costs 3 us more, of 32 GB/s are left:")
for block in (1, 4, 16, 64, 256):
    size = block_copy_bytes(spec, block)
    left = float(effective_pcie(32 * 10**9, size, Fraction(3, 10**6))) / 1e9
    print(f"  blocks of {block:3}: {size / 1024:4.0f} KiB a copy, {left:5.2f} GB/s")

# %% [markdown] lang="en"
# So the sentence is mostly wrong. A link of 32 GB/s swaps 8,192 tokens of Llama-3-8B in 67.1 ms. Computing them again takes
# 301.6 ms at half the peak, and 150.8 ms at all of it. Recompute wins only below about 8 GB/s.
#
# What brings a link down to that? **Small copies.** A piece of a block of 16 tokens has 32 KiB: one layer's K. 32,768 such
# pieces go out. If starting a copy costs 3 us, which is our assumption, 8.14 GB/s are left: nearly a draw. With smaller
# blocks recompute wins, with larger ones swap.
#
# That is what the paper about vLLM measured
# ([section 7.3](https://arxiv.org/abs/2309.06180)): recompute is better for small blocks, swap for large ones, and from 16 to 64
# tokens they are alike. Longer requests speak for swap: attention makes a recompute grow faster than their K and V. The panel
# counts it too. At 8,192 tokens the two meet at 7.12 GB/s, not at 8.07.

# %% [markdown] lang="zh" en="5f5bd905"
# 所以那句话在多数情况下不对。32 GB/s 的链路把 Llama-3-8B 的 8,192 个 token 换出再换入，只要 67.1 ms。重算呢，跑到峰值的一半要 301.6 ms，跑满峰值也要 150.8 ms。只有链路低于大约 8 GB/s 时，重算才赢。
#
# 什么会让链路慢到这个地步？**小拷贝**。16 个槽位的块里，一片只有 32 KiB，也就是一层的 K。换出时，这样的片要拷贝 32,768 片。如果每发起一次拷贝要多花 3 us（这是我们的假设），链路就只剩 8.14 GB/s：几乎打平。块再小，重算赢；块再大，换出赢。
#
# vLLM 的论文测到的正是这样（[第 7.3 节](https://arxiv.org/abs/2309.06180)）：块小时重算更好，块大时换出更好，16 到 64 个 token 之间两者差不多。请求越长，换出越有利：注意力让重算的时间比 K 和 V 增长得更快。下面的面板把注意力也算了进去：8,192 个 token 时，两者在 7.12 GB/s 打平，而不是 8.07。

# %%
panel(
    pictures.which,
    machine=list(pictures.MACHINES),
    context={8192: [512, 2048, 8192, 32768, 131072]},
    pcie={32: [1, 2, 4, 8, 16, 32, 64]},
    block={16: [1, 4, 16, 64, 256]},
    overhead=(3, 0, 10, 1),
)

# %% tags=["claim-panel"]
picture(pictures.which, machine="Llama-3-8B, one H100", context=8192, pcie=32, block=4, overhead=3)

# %% [markdown] lang="en"
# ## A whole service
#
# One request is not a service. 60 prompts of 1,000 tokens arrive, 20 a second, and each is answered with 500. The engine's
# scheduler runs on a simulated H100 with Llama-3-8B and 2,500 blocks. The simulator copies, then computes, one after the other.

# %% [markdown] lang="zh" en="893882aa"
# ## 放到整个服务里看
#
# 一个请求，不等于一项服务。60 个提示词以每秒 20 个的速度到来，每个有 1,000 个 token，各要回答 500 个。引擎的调度器跑在模拟的 H100 上，模型是 Llama-3-8B，有 2,500 个块。模拟器先拷贝再计算，两者不重叠。

# %%
panel(pictures.burst_seconds, blocks={2500: [1500, 2500, 3500]}, pcie={32: list(pictures.RATES)})

# %% tags=["claim-simulated"]
picture(pictures.burst_seconds, blocks=2500, pcie=32)

# %% [markdown] lang="en"
# On a slow link recompute is faster, on a fast one swap. They cross at a faster link than before: here a recompute shares a
# step that reads weights and K and V in any case. But look at the size of it: 11.54 s against 11.74 s. 11 preemptions are a
# small part of the work.
#
# So vLLM's present engine (V1) only recomputes. That is one path less to get wrong. And a recompute shares its batch with
# others, and asks the prefix cache first.
#
# ## Or let fewer start
#
# Preemption happens because requests start that may not all fit later. The **admission rule** says what must fit at the start:
#
# - `first_chunk`: the tokens of the first step. `whole_prompt`: all that is known.
# - `worst_case`: prompt and longest answer. Nobody ever has to go.
#
# A **watermark** keeps a share of the blocks free when somebody starts. First a guess:

# %% [markdown] lang="zh" en="2a574826"
# 链路慢时重算更快，链路快时换出更快。这里要打平，链路得比前面算的更快：重算的请求和别人同在一步里，而这一步反正要读权重、K 和 V。不过看看差别有多大：11.54 s 对 11.74 s。11 次抢占只占全部工作的一小部分。
#
# 所以 vLLM 现在的引擎（V1）只做重算：少一条路径，就少一处可能出错的地方。况且重算的请求和别人同在一个批里，还会先查前缀缓存。
#
# ## 或者少放一些进来
#
# 之所以会抢占，是因为放进来的请求，以后未必全都放得下。**准入规则**（admission rule）规定开始时什么必须放得下：
#
# - `first_chunk`：第一步要算的 token。`whole_prompt`：目前已知的全部 token。
# - `worst_case`：提示词加上最长的回答。谁也不会被抢占。
#
# **水位线**（watermark）在放请求进来时，留出一定比例的块不用。先猜一猜：池子有 40 个块，每块 16 个槽位。提示词 100 个 token，回答最多 200 个。要让谁也不会被抢占，最多几个请求能一起开始？

# %%
predict("14.worst_case", value=None)

# %% tags=["claim-admission", "claim-wrong-answer"]
print("blocks  rule         watermark preempted  again  in use  longest pause all done")
for blocks in (2500, 1500):
    for rule, mark in (("first_chunk", 0), ("whole_prompt", 0), ("whole_prompt", 0.1), ("worst_case", 0)):
        done = pictures.simulated(blocks, None, admission=rule, watermark=mark)
        told = summarize(done)
        print(f"{blocks:6,}  {rule:<13}{mark:9.0%}{told.num_preemptions:10}{told.num_again:7,}", end="")
        print(f"{told.block_utilization:8.1%}{told.itl.max:13.2f} s{done.end:7.2f} s")
risk, safe = (pictures.simulated(1500, None, admission=rule) for rule in ("whole_prompt", "worst_case"))
ends = [{one.arrival: done.token_times(one)[-1] for one in done.served} for done in (risk, safe)]
later = [arrival for arrival in ends[0] if ends[0][arrival] > ends[1][arrival]]
print(f"1,500 blocks: {len(later)} of {len(ends[0])} are done later by whole_prompt than by worst_case")

# %% [markdown] lang="en"
# With 2,500 blocks caution is dear: the worst case leaves more than a third of the pool empty, and takes 14.78 s in place of
# 11.74 s. Taking the risk pays.
#
# With 1,500 blocks it is the other way round: 28,066 tokens are computed again, and **33 of the 60, the last one too, are done
# later** than without any preemption. And look at the pause: a victim's user waits about four seconds in the middle of a sentence. If that is
# not allowed, let fewer start, or turn requests away.
#
# ## When preemption cannot help

# %% [markdown] lang="zh" en="cf9da7a7"
# 有 2,500 个块时，谨慎的代价很高：按最坏情况准入，池子有三分之一以上空着，要 14.78 s，而不是 11.74 s。冒这个险值得。
#
# 只有 1,500 个块时正好相反：有 28,066 个 token 要重算，**60 个里有 33 个（包括最后一个）做完的时间，比完全不抢占还晚**。再看停顿：受害者的用户，一句话读到一半，要等大约四秒。如果不允许这样，就少放一些进来，或者拒绝一部分请求。
#
# ## 抢占帮不上忙的时候

# %% tags=["claim-too-large"]
small = LLMEngine(EngineConfig(num_blocks=4, block_size=4), AuditBackend())
try:
    small.add_request("a", prompt_of("a", 17))
except ValueError as error:
    print("refused:", str(error)[:70])
alone = serve(MyScheduler, [(8, 40), (4, 3)], num_blocks=4)
for name, why in alone.ended.items():
    print(f"{name}: {len(alone.tokens[name])} tokens, ended with {why!r}")

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# A prompt beyond the pool is refused at once. An answer that outgrows it ends with "capacity". The user keeps what was said, and
# the others go on. To preempt it would be a livelock with one: it would return to the same pool.
#
# ## Exercise 14.5 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 25 minutes · about 25 lines
#
# Write tests that a broken scheduler cannot pass. Your function is given a class. Raise AssertionError if it is broken.
# Fourteen broken ones wait, and four right ones.
#
# - `run = serve(scheduler, [(8, 12), (8, 12)], 6)` serves two requests in 6 blocks of 4. A third number is a priority, and
#   counts with `policy="priority"`. It raises `Stuck` if nobody gains a
#   token for long. Any error in your test counts as a catch.
# - `run.tokens["b"]`, `run.ended["b"]`, `run.num_free` at the end. `run.steps[5]` is `({"a": 1}, ["b"])`: in step 5 a computed
#   a token and b was preempted. `run.num_preemptions`.
# - Options: `max_num_seqs`, `max_num_batched_tokens`, `enable_prefix_caching` (on), `preemption="swap"` with
#   `num_swap_blocks`. With `n=2` each gets two answers, and `run.tokens["b"]` is one after the other.
# - `serve(Scheduler, ...)` with many blocks says what the answers should be.
#
# Here is one of the fourteen:
#
# ```python
# def preempt(self, victim, draft):
#     super().preempt(victim, draft)
#     del victim.token_ids[victim.num_prompt_tokens:]
# ```

# %% [markdown] lang="zh" en="6fcff257"
# 比池子还大的提示词，一来就被拒绝。长到池子放不下的回答，以“capacity”结束：已经说出的留给用户，其他请求继续。如果抢占它，就成了只有一个请求的活锁：它回来时，面对的还是同一个池子。
#
# ## 练习 14.5 - 找出 bug
#
# 难度 4/5 · 重要性 4/5 · 25 分钟 · 大约 25 行
#
# 写一些测试，让坏的调度器过不了。你的函数会拿到一个类。如果它是坏的，就抛出 AssertionError。等着你的有十四个坏的和四个正确的。
#
# - `run = serve(scheduler, [(8, 12), (8, 12)], 6)` 用 6 个块、每块 4 个槽位服务两个请求。如果写第三个数，那是优先级，要设 `policy="priority"` 才起作用。长时间没有产出 token 时，它抛出 `Stuck`。你的测试里出现任何错误，都算抓到了。
# - `run.tokens["b"]`、`run.ended["b"]`，以及结束时的 `run.num_free`。`run.steps[5]` 是 `({"a": 1}, ["b"])`：第 5 步里 a 算了一个 token，b 被抢占。`run.num_preemptions`。
# - 选项：`max_num_seqs`、`max_num_batched_tokens`、`enable_prefix_caching`（默认开启）、`preemption="swap"` 配合 `num_swap_blocks`。设 `n=2` 时，每个请求有两个回答，在 `run.tokens["b"]` 里一个接着一个。
# - 给 `serve(Scheduler, ...)` 很多块，跑出来的就是回答应有的样子。
#
# 下面是十四个中的一个：
#
# ```python
# def preempt(self, victim, draft):
#     super().preempt(victim, draft)
#     del victim.token_ids[victim.num_prompt_tokens:]
# ```


# %% exercise="my_tests"
def my_tests(scheduler):
    """Raise AssertionError if this scheduler preempts wrongly."""

    ### BEGIN SOLUTION
    def like_ample(requests, num_blocks, **options):
        run = serve(scheduler, requests, num_blocks, **options)
        assert run.tokens == serve(Scheduler, requests, 200, **options).tokens
        assert set(run.ended.values()) == {"length"}
        assert run.num_free == num_blocks
        return run

    run = like_ample(two, 6)
    assert [who for _, who in run.steps if who] == [["b"]]  # the one that started last
    run = like_ample([*two, (8, 4)], 6, max_num_seqs=2)
    later = [name for computed, _ in run.steps[6:] for name in computed]
    assert later.index("b") < later.index("c")  # the victim comes back first
    like_ample(two, 6, enable_prefix_caching=False)
    like_ample([(7, 8), (5, 8)], 4)
    assert like_ample(two, 10).num_preemptions == 0  # all of it fits
    like_ample([(6, 5)], 12, n=2)
    like_ample([(24, 2), (24, 2)], 8, max_num_batched_tokens=4, enable_prefix_caching=False)
    like_ample([(8, 12)] * 3, 7)  # one goes twice
    run = serve(scheduler, [(4, 8)], 2)
    assert (run.ended["a"], len(run.tokens["a"])) == ("capacity", 5)
    for num_swap_blocks in (8, 2):
        like_ample(two, 6, preemption="swap", num_swap_blocks=num_swap_blocks, enable_prefix_caching=False)
    ### END SOLUTION


# %% test="my_tests" points=3
my_tests = bugs_caught(my_tests, "14")

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# For each bug that got away, the check says where to look.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# A helper that runs a tight pool and a large one, and compares tokens, endings and free blocks. Then many small cases: two,
# three, alone, with `n=2`, with swap.
#
# </details>
# <details><summary>Hint 3: a right scheduler is refused</summary>
#
# Compare what users see, and who goes first. The numbers of blocks, and how long a victim waits, are the scheduler's business.
# One of the right ones lets it wait until nobody runs.
#
# </details>

# %% [markdown] lang="zh" en="c527f533"
# <details><summary>提示 1：从哪里入手</summary>
#
# 每个漏网的 bug，检查都会告诉你该看哪里。
#
# </details>
# <details><summary>提示 2：步骤</summary>
#
# 写一个辅助函数，在紧张的池子和宽裕的池子里各跑一遍，比较 token、结束原因和空闲块。然后用很多小例子：两个、三个、单独一个、`n=2`、换出。
#
# </details>
# <details><summary>提示 3：正确的调度器被拒绝了</summary>
#
# 只比较用户看得到的东西，以及谁先走。块的编号、受害者等多久，是调度器自己的事。正确的里面有一个，要等没有人在运行时才让它回来。
#
# </details>

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# 1. Why does the one that started last go, and not the one with the most blocks?
# 2. Which two rules make a livelock impossible?
# 3. A link moves 4 GB/s. Swap or recompute, for Llama-3-8B on an H100?
#
# <details><summary>Answers</summary>
#
# 1. The one with most blocks has most work to lose, and it often came first: it would be done later than those behind it.
# 2. Who waits takes nothing from who runs, and the first in line can take from all others.
# 3. Recompute: the break-even is at 8.07 GB/s, for short requests.
#
# </details>

# %% [markdown] lang="zh" en="a6f120cc"
# ## 自测
#
# 1. 为什么走的是最后开始的，而不是占块最多的？
# 2. 哪两条规则让活锁不可能发生？
# 3. 链路是 4 GB/s，在 H100 上跑 Llama-3-8B，该换出还是重算？
#
# <details><summary>答案</summary>
#
# 1. 占块最多的，损失也最大，而且往往来得早：抢占了它，它反而比排在后面的做完得更晚。
# 2. 正在等的，不从正在运行的那里拿任何东西；排第一的，可以从其他所有人那里拿。
# 3. 重算：请求不长时，平衡点在 8.07 GB/s。
#
# </details>

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Names as of 2026: the main branches of vLLM and SGLang.
#
# | here | vLLM (V1) | SGLang |
# |---|---|---|
# | victim | `running.pop()`; with priorities the largest `(priority, arrival_time)` | `retract_decode`: least output, then longest prompt |
# | recompute | `_preempt_request`, to the front of `waiting` | `reset_for_retract`, back into the queue |
# | swap | none in the scheduler | on a separate decode server only: `offload_kv_cache` |
# | who starts | whose whole prompt fits: `scheduler_reserve_full_isl`; `watermark`, 0 by default | a guess at the length of answers: `new_token_ratio` |
# | counter | `vllm:num_preemptions_total` | `sglang:num_retracted_requests_total` |
#
# vLLM before V1 swapped groups of several sequences, and recomputed single ones. Its
# [guide](https://docs.vllm.ai/en/v0.9.1/configuration/optimization.html) says what to do: more memory, or fewer requests at once.
#
# > **What this does not show**
# >
# > - Overlap. Copies can run while others compute. That makes swap better still.
# > - The host: its memory bandwidth, and several GPUs behind one switch.
# > - A real service. The burst is made up, and 3 us a copy is an assumption.
# > - Offloading for another reason: K and V on the host as a larger prefix cache.

# %% [markdown] lang="zh" en="8847ea60"
# ## 在生产系统中
#
# 名称以 2026 年 vLLM 和 SGLang 的 main 分支为准。
#
# | 本课 | vLLM（V1） | SGLang |
# |---|---|---|
# | 受害者 | `running.pop()`；有优先级时取 `(priority, arrival_time)` 最大的 | `retract_decode`：回答最短的，其次是提示词最长的 |
# | 重算 | `_preempt_request`，放到 `waiting` 最前面 | `reset_for_retract`，回到队列 |
# | 换出 | 调度器里没有 | 只在独立的解码服务器上：`offload_kv_cache` |
# | 谁能开始 | 整个提示词放得下的：`scheduler_reserve_full_isl`；`watermark` 默认为 0 | 估计回答长度：`new_token_ratio` |
# | 计数器 | `vllm:num_preemptions_total` | `sglang:num_retracted_requests_total` |
#
# V1 之前的 vLLM，对有多条序列的一组用换出，对单条序列用重算。它的[指南](https://docs.vllm.ai/en/v0.9.1/configuration/optimization.html)说明该怎么办：增加内存，或者减少同时运行的请求。
#
# > **这一课没有说明的事**
# >
# > - 重叠。别人计算时，拷贝可以同时进行。这会让换出更有利。
# > - 主机这一侧：内存带宽，以及一个交换机后面接好几块 GPU。
# > - 真实的服务。这批请求是编出来的，每次拷贝 3 us 是假设。
# > - 出于别的目的搬到主机上：把那里的 K 和 V 当成更大的前缀缓存。

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Is a preemption an error?</summary>
#
# No: nobody gets a wrong answer. It is a sign that more started than fits. A few are cheap, a steady stream is not.
#
# </details>
# <details><summary>Can the text change when temperature is not 0?</summary>
#
# Not here: a draw depends on the seed and the position, not on who else runs. An engine with one random stream for all may
# answer differently.
#
# </details>
# <details><summary>Why not free only the last few blocks of the victim?</summary>
#
# One could. Every token attends to all before it, so it cannot go on before they are back. Whole requests are simpler, and the
# others get all the room at once.
#
# </details>

# %% [markdown] lang="zh" en="8c4d671f"
# ## 常见问题
#
# <details><summary>抢占算错误吗？</summary>
#
# 不算：没有人得到错误的回答。它说明放进来的请求超出了容量。偶尔几次，代价很小；接连不断，代价就大了。
#
# </details>
# <details><summary>temperature 不是 0 时，文本会变吗？</summary>
#
# 在这里不会：一次采样取决于种子和位置，与同时运行的还有谁无关。如果引擎让所有请求共用一个随机数流，回答就可能不同。
#
# </details>
# <details><summary>为什么不只释放受害者最后几个块？</summary>
#
# 可以这样做。但每个 token 都要对前面所有 token 做注意力，那几个块回来之前，它没法继续。整个请求一起处理更简单，别人也能一次拿到全部空间。
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - The one that started last goes, keeps its tokens, waits in front, and nobody can tell from its text.
# - The first in line always progresses: that is what rules a livelock out.
# - Swap beats recompute on a healthy bus. Admission decides how often either is needed.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | preemption | 抢占 | "eviction" | a running request gives up its blocks and comes back later |
# | victim | 受害者 | "LIFO" | the one that started last, or the least important |
# | recompute | 重算 | "drop and redo" | tokens kept, K and V computed again as a prompt |
# | swap | 换出/换入 | "offload" | K and V in host memory until there is room |
# | livelock | 活锁 | "thrashing" | everybody works, nobody progresses |
# | watermark | 水位线 | "headroom" | blocks kept free when somebody starts |
#
# **Open exercises.** *Easy:* plot the longest pause against the watermark.
# *Medium:* write a `preempt` that swaps or recomputes by the break-even of each request, and try it in the simulator.
# *Research:* guess the length of answers from those seen. How much closer to full can the pool run?
#
# **Back:** [13 · Chunked prefill](lessons/13_chunked_prefill.ipynb) · **Next:** [15 · The whole engine](lessons/15_whole_engine.ipynb)

# %% [markdown] lang="zh" en="780b5e8c"
# ## 三句话总结
#
# - 最后开始的先走，token 留着，排在队列前面等；从文本上谁也看不出来。
# - 排第一的总能前进，所以不会有活锁。
# - 总线正常时，换出胜过重算。多久会用上它们一次，由准入规则决定。
#
# | 术语 | 英文 | 常见的说法 | 含义 |
# |---|---|---|---|
# | 抢占 | preemption | “eviction” | 正在运行的请求让出块，以后再回来 |
# | 受害者 | victim | “LIFO” | 最后开始的，或最不重要的那个请求 |
# | 重算 | recompute | “drop and redo” | token 留着，K 和 V 当作提示词重新计算 |
# | 换出/换入 | swap | “offload” | K 和 V 放在主机内存里，等有空间再回来 |
# | 活锁 | livelock | “thrashing” | 人人都在忙，谁也没有进展 |
# | 水位线 | watermark | “headroom” | 放请求进来时留着不用的块 |
#
# **开放练习。** *简单*：画出最长停顿随水位线的变化。*中等*：写一个 `preempt`，对每个请求按平衡点决定换出还是重算，并在模拟器里试一试。*研究*：根据已经见过的回答，猜测新回答的长度。池子还能用得更满多少？
#
# **上一课：** [13 · 分块预填充](lessons/13_chunked_prefill.ipynb) · **下一课：** [15 · 完整的引擎](lessons/15_whole_engine.ipynb)
