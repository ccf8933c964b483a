# ---
# jupyter:
#   course:
#     translated: false
# ---

# %% [markdown] lang="en" tags=["goals"]
# # 13 · Chunked prefill
#
# **A long prompt comes in pieces, and everybody else goes on reading.**
#
# 90 to 120 minutes · plain Python, no GPU · after lessons 03 and 07; 12 helps
#
# After this lesson you can
#
# - say for how long a long prompt stops every stream, and cut it so that it does not;
# - write the scheduler's `chunk_size` and run the engine on it, with the same text for every budget;
# - choose a token budget for a limit on the gap between two tokens, and say what it costs.

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
# each step. It shows one reader's gaps between tokens, or **ITL** (inter-token latency). 1.492 s is a little less, since an
# engine computes the output head for the last token alone, and the formula for every token.
#
# And measured, here and now: the small model, eight readers, a prompt of 2,000 tokens.

# %% tags=["claim-measured", "nbval-ignore-output"]
GREEDY = {"temperature": 0, "ignore_eos": True}


def measure(budget):
    """(longest ms between two tokens of the readers, ms to the long prompt's first token)"""
    engine = LLM("tiny-gqa", max_num_batched_tokens=budget, enable_prefix_caching=False, num_blocks=400).engine
    for number in range(8):
        engine.add_request(f"reader {number}", range(5 + number, 25), SamplingParams(max_tokens=60, **GREEDY))
    came, longest, first = 0.0, 0.0, None
    for step in range(60):
        if step == 20:
            came = time.perf_counter()
            engine.add_request("long", [1 + 31 * i % 2000 for i in range(2000)], SamplingParams(max_tokens=2, **GREEDY))
        begin = time.perf_counter()
        outputs = engine.step()
        longest = max(longest, time.perf_counter() - begin) if step else 0.0
        if first is None and any(output.request_id == "long" for output in outputs):
            first = time.perf_counter() - came
    return longest * 1000, (first or float("nan")) * 1000


for words, budget in (("whole", 4096), ("in chunks, 128 tokens a step", 128)):
    gap, ttft = measure(budget)
    print(f"{words:<30}longest gap {gap:4.0f} ms, the prompt's first token {ttft:4.0f} ms")

# %% [markdown] lang="en"
# The second line is what you will build. The readers wait a tenth as long, and the prompt itself a little longer.
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
# The same up to rounding, wherever you cut. Some small engines let a chunk attend to itself alone. Their text is fluent, and
# wrong.
#
# ## What it costs: computing
#
# "Chunking costs 6% more attention work", you may read
# ([an example](https://dev.to/ji_ai/chunked-prefill-why-one-long-prompt-stalls-every-decode-ln0)). Is that so?

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
# Exactly the same, to the last FLOP. (The counter is the simulator's. It computes one row of logits, and an answer of 20 tokens.)
# Each token sees what it saw before. The 6% are a kernel's that computes scores under the mask and throws them away. On a whole
# prompt such a kernel wastes more.
#
# ## What it costs: reading
#
# But each chunk reads the K and V of all tokens before it, again.

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
# - No loop: the check asks for millions of chunks.
# - Exact: integers only.
#
# Small case: 10 tokens in chunks of 4 start at 0, 4 and 8, so the answer is 12.


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
# <details><summary>Hint 3: "exact for large numbers" fails</summary>
#
# `/` makes a float, and `math.ceil` comes too late. Divide by 2 with `//`.
#
# </details>
#
# Three ways to the same number: your formula, the bytes that the simulator counts, and the plan that it recorded.

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
bandwidth = get_gpu("h100-sxm").memory_bandwidth
print(
    f"time: {1000 * formula / (8 * bandwidth):.1f} ms for K and V, {15 * 1000 * weights / bandwidth:.0f} ms for weights"
)
assert formula == counter
assert shown.text.endswith(f"{formula / 1e9:.1f} GB")
shown

# %% [markdown] lang="en"
# 245,760 tokens, 80.5 GB. It sounds like a lot. Eight GPUs read that in 3.0 ms, of 1.52 s. The weights, read 15 times more,
# are 78 ms. And both hide behind computing, as long as a chunk is compute bound (lesson 03). Below that, they show: soon.
#
# ## Riding along
#
# So a prompt may come in pieces, and what is left of a step is free for others. One **token budget** a step,
# `max_num_batched_tokens`, is shared by all. Readers need one token each, and the prompt takes the rest. Sarathi-Serve calls
# it **stall-free batching**.
#
# In letters: two readers, r and s, and a prompt of 40 tokens, whole or with 12 tokens a step. In the picture: three readers
# and our prompt on the simulated machine, drawn to scale in time.


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
picture(lambda figure: draw(figure, lines, x="seconds"), width=7.2, height=4.2)

# %% [markdown] lang="en"
# Counted in steps, whole is shorter. But its step 3 has 42 tokens. In the picture such a step is one long bar: each reader
# gets one token in all that time. In chunks, each white line is a token, and they go on.
#
# Of 12 tokens the prompt gets 10, since two are owed to the readers. Here they were served first anyway. They are not always
# first: a prompt with priority, or one that was preempted, stands in front of them. What if it takes what it can?


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
# - `num_behind`: running sequences that are served after this one. Each is owed one token.
# - Return how many tokens to compute now: at least 1, at most what is missing and what is left. Take all that nobody is owed.
#
# Small case: 40 are missing, 12 are left, 2 are behind: 10. With 20 behind: 1.


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
# The budget counts tokens, not time. The last chunk attends to all before it, so it takes 116 ms where the first took 74.
#
# - **512**: the readers hardly notice, 31 ms. The long prompt pays with its **TTFT**, the time to its first token: 1.65 s in
#   place of 1.49.
# - **2,048**: 116 ms, and 1.53 s.
# - **8,192**: 441 ms, which people see. The prompt gains little more.
#
# So a small budget is good for ITL, a large one for TTFT. Move the budget:

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
# - Call `step_seconds` at most 60 times, however large `most` is.
#
# Small case: n tokens take 2 + n seconds. With a limit of 5 the answer is 3.


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
# The costliest step is the last one of the prompt. `last_step_seconds(n)` gives its time: a token for each of the eight
# readers, and a chunk that ends the prompt.

# %% tags=["claim-limit"]
for limit in (0.02, 0.05, 0.1):
    budget = largest_budget(last_step_seconds, limit, LONG)
    gap, ttft = waits(serve_readers(budget, scheduler=MyScheduler))
    print(
        f"limit {1000 * limit:3.0f} ms: budget {budget:5,}, simulated gap {1000 * gap:5.1f} ms, first token {ttft:.2f} s"
    )
    assert gap <= limit
shown = ", ".join(f"{n}: {1000 * last_step_seconds(n):.1f}" for n in (1, 64, 128, 256, 512))
print(f"tokens and ms of a step: {shown}")
flat = largest_budget(last_step_seconds, 1.01 * last_step_seconds(64), 2048)
print(f"from 9 to {flat} tokens the same within 1%: as long as the weights are read")

# %% [markdown] lang="en"
# There is a floor: a step of one token takes 8.5 ms, since the weights are read. 128 tokens take 9.0 ms: almost free. From
# there on computing takes over, and time grows with tokens.
#
# A budget does one thing more: it bounds **activations**. They grow with the tokens of a step, and an engine must keep room for
# the largest step it may ever run. That room is not there for the cache:

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

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# ## Exercise 13.5 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 25 minutes · about 25 lines
#
# Write tests that a broken chunker cannot pass. Your function is given `make`: `make(8)` is a run with a budget of 8, with
# blocks of 4. Raise AssertionError if it is broken. Nine broken schedulers wait, and three right ones.
#
# - Queue a request with `run.add("a", tokens, max_tokens, priority)`. The smallest priority is in front, 0 is the default.
# - `run.step()` returns the chunks of one step: a list of `(name, first token, number of tokens)`. `run.finish()` returns all
#   steps that are left.
# - `run.answer("a")`: the tokens sampled so far. `right_answer(tokens, n)`: what they should be.
#
# What holds: a step keeps the budget, and uses it while tokens are missing. Each token is computed once, in order, unless it
# was found in the cache. Whoever runs has a chunk in every step, as long as the budget has a token for each.
#
# Here is one of the nine (a chunk that ends too soon gets a token sampled):
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
# One prompt alone, just below, at and above twice the budget. A reader, and a long prompt behind or in front of him. Two
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
# | default | on an H100 8,192 to serve and 16,384 offline; on an A100 2,048 and 8,192 | by GPU memory |
# | decodes ride along | always: `v1/core/sched/scheduler.py` | with `--enable-mixed-chunk` |
# | one prompt's share | `long_prefill_token_threshold` | |
#
# The other way out is to compute prompts on other machines and send the K and V over (**disaggregation**). Then no prompt ever
# stands in a decode's way, for the price of more machines and a fast network.
#
# > **What this does not show**
# >
# > - Time on a GPU. Ours is a roofline with stated constants, and a small model on a CPU.
# > - Kernels. A step with one long chunk and many decodes is ragged, and real kernels lose time there.
# > - Tensor parallel traffic: our 70B model talks between GPUs for free.
# > - A service. One long prompt and eight readers are not a trace. Lesson 15 takes one.

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
