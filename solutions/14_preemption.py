# ---
# jupyter:
#   course:
#     translated: false
# ---

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

# %%
predict("14.full", value=None)

# %% [markdown] lang="en"
# Somebody has to give up blocks, in the middle of an answer. That is **preemption**. The victim comes back later:

# %% tags=["diagram"]
svg(*pictures.life())

# %% [markdown] lang="en"
# ## Who goes?
#
# The one that **started last** (LIFO). As a rule it has the least to lose, and whoever came first is done first. If requests
# have priorities, the least important goes before all others.
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
# - `self.kv.append(request, num_tokens)` takes blocks. It returns copies, which belong into the list `draft.cache_ops`. Or it
#   raises `NoFreeBlocksError`, and nothing has changed.
# - Then ask `self.pick_victim(...)`, and call `self.preempt(victim, draft)`. Go on until it works.
# - The victim may be the request itself. Then stop.
# - If nobody else is in `self.running`, it has the whole pool, and needs more. Call `self.end(request)`. It will finish with
#   the reason "capacity".
#
# Small case: a, b, c run, and b needs a block: c goes, or b.


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
# That is a **livelock**: everybody works, nobody gets anywhere. `serve` has a watchdog, which gives up when 60 steps bring no
# token.
#
# Ours progresses, and the reason is short. Nobody who waits takes from those who run. The first in `running` can take the blocks
# of all others, and nobody takes its own. So the first always moves on, until it ends. Then there is another first.
#
# ## Way one: compute again
#
# The victim's blocks are freed, and its tokens are kept. When it returns, prompt and answer so far are **one prompt**. How
# much work is that?

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
# - `self.kv.free(victim)` gives its blocks back. So nothing of it is computed any more: `victim.num_computed_tokens`.
# - Its `status` is `RequestStatus.PREEMPTED`. All its tokens stay.
# - `self.waiting.add(victim)` puts it into the queue, by its arrival: in front of all that never started.
# - Tell the plan, `draft.preempted`, and the counter, `self.counters.num_preemptions`.


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
# Your three methods make a scheduler. It goes into the engine with one argument. Six prompts of 200 tokens are answered with
# 120, by a model. In 400 blocks nobody has to go; 90 are too few.


# %% tags=["claim-same-text", "claim-prefix"]
class MyScheduler(MyVictim, MyRoom, MyPreempt):
    pass


prompts = [[(13 * i * i + 7 * who) % 2000 for i in range(200)] for who in range(6)]
greedy = SamplingParams(temperature=0, max_tokens=120, ignore_eos=True)


def texts(**options):
    llm = LLM("tiny-gqa", backend="numpy", **options)
    answers = [output.outputs[0].text for output in llm.generate(prompts, greedy, progress=False)]
    return answers, llm.engine.stats()


ample, before = texts(num_blocks=400)
print(f"{'400 blocks':<22}0 preemptions, {before.num_prefill_tokens:,} prompt tokens computed")
for words, options in (("90 blocks", {}), ("90, no prefix cache", {"enable_prefix_caching": False})):
    answers, stats = texts(num_blocks=90, scheduler=MyScheduler, **options)
    assert answers == ample
    print(
        f"{words:<22}{stats.num_preemptions} preemptions, {stats.num_prefill_tokens:,} prompt tokens computed, same text"
    )

# %% [markdown] lang="en"
# The text is the same, to the last letter. A prefix cache makes the return cheaper: freed blocks are found until somebody
# needs them (lesson 09). In a full pool somebody soon does.
#
# ## Watch it
#
# The first two requests again, with your scheduler. The rows show who computes what, the film shows the blocks.

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
# pieces go out. If starting a copy costs 3 us, which is our assumption, 8.14 GB/s are left: a draw. With smaller blocks
# recompute wins, with larger ones swap.
#
# That is what the paper about vLLM measured
# ([section 7.3](https://arxiv.org/abs/2309.06180)): recompute is better for small blocks, swap for large ones, and from 16 to 64
# tokens they are alike. Longer requests speak for swap: attention makes a recompute grow faster than their K and V.

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
picture(pictures.which, machine="Llama-3-8B, one H100", context=8192, pcie=32, block=16, overhead=3)

# %% [markdown] lang="en"
# ## A whole service
#
# One request is not a service. 60 prompts of 1,000 tokens arrive, 20 a second, and each is answered with 500. The engine's
# scheduler runs on a simulated H100 with Llama-3-8B and 2,500 blocks. The simulator copies, then computes, one after the other.

# %%
panel(pictures.burst_seconds, blocks={2500: [1500, 2500, 3500]}, pcie={32: list(pictures.RATES)})

# %% tags=["claim-simulated"]
picture(pictures.burst_seconds, blocks=2500, pcie=32)

# %% [markdown] lang="en"
# On a slow link recompute is faster, on a fast one swap. But look at the size of it: 11.54 s against 11.74 s. 11 preemptions
# are a small part of the work.
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

# %% [markdown] lang="en"
# With 2,500 blocks caution is dear: the worst case leaves more than a third of the pool empty, and takes 14.78 s in place of
# 11.74 s. Taking the risk pays.
#
# With 1,500 blocks it is the other way round: 28,066 tokens are computed again, and **everybody is done later** than without
# any preemption. And look at the pause: a victim's user waits about four seconds in the middle of a sentence. If that is
# not allowed, let fewer start, or turn requests away.
#
# ## When preemption cannot help

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
# Fourteen broken ones wait, and three right ones.
#
# - `run = serve(scheduler, [(8, 12), (8, 12)], 6)` serves two requests in 6 blocks of 4. It raises `Stuck` if nobody gains a
#   token for long. Any error in your test counts as a catch.
# - `run.tokens["b"]`, `run.ended["b"]`, `run.num_free` at the end. `run.steps[5]` is `({"a": 1}, ["b"])`: in step 5 a computed
#   a token and b was preempted. `run.num_preemptions`.
# - Options: `max_num_seqs`, `max_num_batched_tokens`, `enable_prefix_caching`, `preemption="swap"` with `num_swap_blocks`, `n`.
# - `serve(Scheduler, ...)` with many blocks says what the answers should be.
#
# Here is one of the fourteen:
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
# Compare what users see, and who was preempted. The numbers of blocks are nobody's business.
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

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Names as of 2026: the main branches of vLLM and SGLang.
#
# | here | vLLM (V1) | SGLang |
# |---|---|---|
# | victim | `running.pop()`; with priorities the largest `(priority, arrival_time)` | `retract_decode`: least output, then longest prompt |
# | recompute | `_preempt_request`, into `waiting` in front | `reset_for_retract`, into the queue |
# | swap | none in the scheduler | none in the scheduler |
# | who starts | what fits now, with a watermark | a guess at the length of answers, `new_token_ratio` |
# | counter | `vllm:num_preemptions_total` | `num_retracted_reqs` |
#
# vLLM before V1 swapped groups of several sequences, and recomputed single ones. Its warning named the mode, and its
# [guide](https://docs.vllm.ai/en/v0.9.1/configuration/optimization.html) says what to do: more memory, or fewer requests at once.
#
# > **What this does not show**
# >
# > - Overlap. Copies can run while others compute. That makes swap better still.
# > - The host: its memory bandwidth, and several GPUs behind one switch.
# > - A real service. The burst is made up, and 3 us a copy is an assumption.
# > - Offloading for another reason: K and V on the host as a larger prefix cache.

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

# %% [markdown] lang="en"
# ## In three lines
#
# - The one that started last goes, keeps its tokens, waits in front, and nobody can tell from its text.
# - The first in line always progresses: that is what rules a livelock out.
# - Swap beats recompute on a healthy bus. Admission decides how often either is needed.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | preemption | 抢占 | "eviction" | a running request gives up its blocks and comes back later |
# | victim | 被抢占者 | "LIFO" | the one that started last, or the least important |
# | recompute | 重算 | "drop and redo" | tokens kept, K and V computed again as a prompt |
# | swap | 换出与换入 | "offload" | K and V in host memory until there is room |
# | livelock | 活锁 | "thrashing" | everybody works, nobody progresses |
# | watermark | 水位线 | "headroom" | blocks kept free when somebody starts |
#
# **Open exercises.** *Easy:* plot the longest pause against the watermark.
# *Medium:* write a `preempt` that swaps or recomputes by the break-even of each request, and try it in the simulator.
# *Research:* guess the length of answers from those seen. How much closer to full can the pool run?
#
# **Back:** [13 · Chunked prefill](lessons/13_chunked_prefill.ipynb) · **Next:** [15 · The whole engine](lessons/15_whole_engine.ipynb)
