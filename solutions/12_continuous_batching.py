# ---
# jupyter:
#   course:
#     translated: false
# ---

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

# %%
import statistics
import time
from itertools import pairwise

from mini_engine import LLM, EngineConfig, SamplingParams
from mini_engine.course import bugs_caught, check, panel, picture, predict, svg
from mini_engine.course.engine_and_simulator import at_once, run_both
from mini_engine.course.own_scheduler import SchedulerLab, serve
from mini_engine.course.panels import p12_continuous_batching as pictures
from mini_engine.course.timeline import timeline
from mini_engine.roofline.measure import one_thread
from mini_engine.scheduling import Scheduler
from mini_engine.simulator import Efficiency, StaticBatch, simulate, summarize
from mini_engine.simulator.calibrate import shrink
from mini_engine.workload import load_trace

# %% [markdown] lang="en"
# ## The pain
#
# Six users ask at the same moment. Their prompts have 6 tokens each. Their answers will have 3, 20, 5, 8, 12 and 4 tokens, but
# nobody knows that yet. The server has four **seats**: rows of a batch.
#
# It does what servers did until 2022. It takes four requests, runs them until the last one is done, and takes the next.

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
# rows that are done up to the longest answer. That filling is **padding**. A batch of $n$ requests with prompts $p_i$ and
# answers $o_i$ computes
#
# $$n \times (\max p + \max o - 1) \text{ slots, of which } \sum_i (p_i + o_i - 1) \text{ are needed}$$
#
# The $-1$: the last token of an answer is sampled, and never computed. A guess first:

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
# Eight rows take far less than eight times as long as one. On this toy, Python's overhead hides most of the padding. On a GPU the reading
# of the weights hides some (lesson 03). So we count slots, and measure time on its own.
#
# What hurts most is not the padding. It is the **wait** for the longest answer of a batch.
#
# ## Iteration-level scheduling
#
# The cure is from [Orca](https://www.usenix.org/conference/osdi22/presentation/yu) (Yu et al. 2022): schedule one
# **iteration**, one step of the model, in place of a whole batch. After each step, who is done leaves, and who waits may start.
# Most people say **continuous batching**, TensorRT-LLM *in-flight batching*.

# %% tags=["diagram"]
svg(*pictures.loop())

# %% [markdown] lang="en"
# Can rows at different places share a step? All tokens of a step lie in one flat list. Only attention must know whose they are,
# and it reads each request's own block table (lesson 07). Orca calls that *selective batching*. No rectangle, no padding: our
# engine has none, whatever the scheduler. What you saw above is the simulator's count of what a rectangle would compute.

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
# Write the two loops of the engine's scheduler. A step has a budget of tokens (`draft.budget`), and each chunk that you add takes
# from it.
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
# `admit` keeps a reserve, or counts for others. If nobody runs, there is nobody to wait for: a refusal would last for ever.
#
# </details>
#
# Your scheduler goes into the engine and into the simulator. 60 short chats with different arrivals, few blocks, and every step
# takes a second. Do both plan the same, and the same as the engine's own?

# %% tags=["claim-same-plans"]
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
# to 1. What is left of the gain?

# %%
panel(
    pictures.batching,
    unit=list(pictures.POLICIES),
    requests=(8, 1, 12),
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


# %% tags=["claim-units", "claim-loses"]
def report(words, trace, **options):
    of = summarize(simulate(trace, prefix_cache=False, **options), ttft=1.0, tpot=0.05)
    padding = f"{of.padding_share:.0%}" if of.num_padding else "-"
    print(
        f"{words:<20}{of.requests_per_s:6.2f}{of.ttft.p50:9.2f}{of.itl.p50 * 1000:8.1f}{of.itl.max * 1000:8.0f}", end=""
    )
    print(f"{of.goodput.share:9.0%}{padding:>9}")
    return of


print(f"{'unit':<20}{'req/s':>6}{'TTFT p50':>9}{'ITL p50':>8}{'max':>8}{'goodput':>9}{'padding':>9}")
for words, batching in pictures.POLICIES.items():
    report(words, chats.at_rate(8), batching=batching, max_num_seqs=32)
print("TTFT in s, ITL in ms, goodput as a share of all requests")

# %% [markdown] lang="en" tags=["claim-orca-setup"]
# Scheduling by iteration serves nearly three times as many requests a second. The median TTFT falls from 27.09 s to 0.04 s.
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
# - `self.kv.num_free_blocks` are free. (No prefix cache here.)


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

# %% tags=["claim-combinations"]
print(f"{'':20}{'req/s':>6}{'TTFT p50':>9}{'ITL p50':>8}{'max':>8}{'goodput':>9}{'padding':>9}")
rates = {}
for batching in ("static", "iteration"):
    for memory in ("reserved", "paged"):
        options = {"batching": batching, "memory": memory, "num_blocks": 4096, "max_num_seqs": 64}
        rates[batching, memory] = report(f"{batching}, {memory}", chats.at_rate(20), **options).requests_per_s
base = rates["static", "reserved"]
print("requests a second, over the first:", ", ".join(f"{rate / base:.1f}x" for rate in rates.values()))
print(f"regions of 8,192 tokens in {4096 * 16:,} slots: {4096 * 16 // 8192}")

requests = at_once([6, 9, 5, 7, 8, 6, 7, 5], [3, 20, 5, 8, 12, 4, 6, 9])
print("\nthe engine, 64 slots:")
memories = {"reserved 32": (2, 32), "paged": (16, 4)}
whole = {"max_num_seqs": 8, "max_model_len": 32, "enable_chunked_prefill": False, "enable_prefix_caching": False}
for words, kind in {"static": StaticBatch, "iteration": Scheduler, "your reservation": MyReservation}.items():
    for memory, (num_blocks, size) in memories.items():
        run = run_both(requests, EngineConfig(num_blocks=num_blocks, block_size=size, **whole), kind)
        assert run.simulated == run.planned
        preempted = run.engine.stats().num_preemptions
        print(f"{words:<18}{memory:<12}{len(run.planned):3} steps, {preempted} preemptions")

# %% [markdown] lang="en"
# Each helps without the other, and together they help most. Scheduling by iteration needs no paging. But reserved memory leaves few
# seats to fill. Your reservation lies between: it promises what `max_tokens` says, and never preempts.
#
# ## When it does nothing

# %% tags=["claim-nothing"]
cases = {
    "32 equal answers, 8 seats": ([64] * 32, 8),
    "as many seats as requests": ([4, 60, 20, 44], 4),
    "one seat": ([4, 60, 20, 44], 1),
    "the six users": (outputs, 4),
}
for words, (answers, seats) in cases.items():
    steps = []
    for kind in (StaticBatch, Scheduler):
        of = EngineConfig(num_blocks=500, max_num_seqs=seats, enable_chunked_prefill=False, enable_prefix_caching=False)
        steps.append(len(run_both(at_once([6] * len(answers), answers), of, kind).planned))
    print(f"{words:<28}static {steps[0]:3} steps, continuous {steps[1]:3}")

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# Equal lengths, one seat, or nobody who waits: there is no gap to fill. (With enough seats it still spares the padding.) The gain
# comes from **spread and queue**.
#
# ## Exercise 12.5 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 25 minutes · about 20 lines
#
# Write tests that a broken scheduler cannot pass. Your function is given `make`: `make(max_num_seqs=2, num_blocks=8)` is a
# scheduler (blocks of 4, four seats, 64 tokens a step and whole prompts, unless you say otherwise). Fifteen broken ones wait, and
# three right ones.
#
# - `serve(scheduler, {"a": (3, 4), "b": (5, 2, 1)})` runs requests to their end: prompt 3 and answer 4; `b` comes before step 1. A
#   fourth number asks for several answers. You get a list of dicts: tokens of each request in each step.
# - `scheduler.kv.num_free_blocks` afterwards.
# - A **watchdog** ends what never ends. A step that plans nothing, or the same work over and over, raises `NoProgressError`, and
#   that counts as caught.
#
# Here is one of the fifteen:
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
# | running first, then waiting | the same order, one token budget | a new prefill batch first, then decode, unless mixed |
# | seats | `--max-num-seqs` | `--max-running-requests` |
# | budget of a step | `--max-num-batched-tokens` | `--max-prefill-tokens`, `--chunked-prefill-size` |
# | who starts next | `--scheduling-policy fcfs` or `priority` | `--schedule-policy`: `lpm`, `fcfs`, ... |
#
# vLLM V1 says it in a comment of its scheduler: there is no prefill phase and no decode phase, only tokens that are computed and
# tokens that are known.
#
# > **What this does not show**
# >
# > - A GPU. The simulated times are roofline times with stated constants, and without network or kernel details.
# > - The price of a decision. A scheduler in Python takes time in every step, and the GPU waits for it.
# > - Fairness. First come, first served lets one user with many requests fill the queue.

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
# A long prompt needs much room at once. If short ones may pass, it waits for ever. Example: the broken scheduler "overtakes".
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
