# ---
# jupyter:
#   course:
#     translated: false
# ---

# %% [markdown] lang="en" tags=["goals"]
# # 15 · The whole engine
#
# **Your pieces, one loop around them, and a promise to keep.**
#
# 120 to 150 minutes · plain Python, no GPU · after lessons 07 to 09 and 12 to 14
#
# After this lesson you can
#
# - write the step of an engine that survives an error, and serve a real model with the pieces that you have written;
# - say what each idea of the course buys on a service, and why the gains do not multiply;
# - read vLLM's source, and defend a plan for a service with a simulator.

# %%
import importlib.util
import time
from itertools import pairwise

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend, TorchBackend
from mini_engine.course import capacity_plan as service
from mini_engine.course import check, panel, picture, predict, svg
from mini_engine.course.own_engine import Arrival, EngineLab, assemble, without_cache
from mini_engine.course.panels import p15_whole_engine as pictures
from mini_engine.course.panels.simulated_against_measured import errors
from mini_engine.models import available_models, load_model
from mini_engine.simulator import SimulationOptions, simulate, summarize
from mini_engine.simulator.ablation import OTHER_ORDER, Service, chats, measure, rungs, table
from mini_engine.workload import load_trace

# %% [markdown] lang="en"
# ## The pain
#
# Here is the loop that many people write around a model. Three users are served. Then, once, the GPU runs out of memory.


# %% tags=["claim-failed-step"]
class Simple(EngineLab):
    def step(self):
        plan = self.plan()
        self.commit(plan, self.execute(plan))
        return self.told()


class FailsOnce(AuditBackend):
    passes = 0

    def execute(self, batch):
        self.passes += 1
        if self.passes == 3:
            raise MemoryError("the GPU is full")
        return super().execute(batch)


PROMPTS = {"ann": [5, 9, 3, 8, 2, 7], "bob": [7, 1, 4], "cat": [2, 2, 6, 1]}


def three_users(engine_class, tries=20, **parts):
    engine = engine_class(EngineConfig(num_blocks=16, block_size=4), FailsOnce(), **parts)
    for name, prompt in PROMPTS.items():
        engine.add_request(name, prompt, SamplingParams(temperature=0, max_tokens=5))
    answers = {}
    for number in range(1, tries + 1):
        if not engine.has_unfinished_requests():
            break
        try:
            answers |= {output.request_id: output.outputs[0].token_ids for output in engine.step()}
        except (MemoryError, RuntimeError) as error:
            print(f"step {number}: {type(error).__name__}: {str(error)[:53]}")
    return answers, engine


answers, _ = three_users(Simple, tries=5)
print("tokens that each has got:", {name: len(tokens) for name, tokens in answers.items()})

# %% [markdown] lang="en"
# One pass failed, and nobody is ever served again. The scheduler has handed out blocks and chunks for a step that did not
# happen. Nobody told it.
#
# ## One step
#
# So a step has two ends. **Plan**: blocks change hands, nothing is computed. **Execute**: the backend computes. Then either
# **commit**, and everything becomes true, or **roll back**, as if nothing had been planned.

# %% tags=["diagram"]
svg(*pictures.life_of_a_step())

# %% [markdown] lang="en"
# First a guess.

# %%
predict("15.rollback", value=None)

# %% [markdown] lang="en"
# ## Exercise 15.1 - execute a plan
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 9 lines
#
# Write `execute(self, plan)`. `EngineLab` is the engine, taken apart:
#
# - `self.backend.apply_ops(plan.cache_ops)` moves blocks. That comes first: the pass reads what was moved.
# - `self.build(plan)` makes the arrays, and `self.backend.execute(arrays)` runs **one** pass over all chunks.
# - A chunk is `(request_id, index, start, num_tokens)`. Its sequence is `self.scheduler.requests[request_id, index]`.
# - `self.sample(result, sequences)` draws one token for each of these sequences. Give it those whose **last known token** is
#   computed now, in the order of the plan.
#
# Return what `sample` returns. A plan without chunks runs no pass, and returns `{}`.
#
# Small case: a prompt of 3 tokens with a budget of 2. The first chunk gives no token, the second gives one.


# %% exercise="MyExecute"
class MyExecute(EngineLab):
    def execute(self, plan):
        """Run a plan; a token for every sequence whose known tokens are all computed now."""
        ### BEGIN SOLUTION
        self.backend.apply_ops(plan.cache_ops)
        if not plan.chunks:
            return {}
        complete = []
        for request_id, index, start, num_tokens in plan.chunks:
            request = self.scheduler.requests[request_id, index]
            if start + num_tokens == request.num_tokens:
                complete.append(request)
        return self.sample(self.backend.execute(self.build(plan)), complete)
        ### END SOLUTION


# %% test="MyExecute" points=3
MyExecute = check("15.execute", MyExecute)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# A sequence knows `request.num_tokens` tokens. This step computes up to `start + num_tokens`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Apply the operations. If there are no chunks, return `{}`. Collect the sequences for which `start + num_tokens` is
# `request.num_tokens`. Build, execute, sample.
#
# </details>
# <details><summary>Hint 3: "who is computed in part gets none" fails</summary>
#
# Half a prompt has no next token. Sample only for sequences that are complete, in the order of their chunks.
#
# </details>
#
# ## Exercise 15.2 - one step
#
# Difficulty 3/5 · importance 5/5 · 15 minutes · about 10 lines
#
# Write `step(self)`. You have `self.plan()`, your `self.execute(plan)`, `self.commit(plan, tokens)`,
# `self.rollback(plan, error)`, and `self.told()`: the outputs of all requests that changed.
#
# - While `self.scheduler.requests` is empty, plan nothing. `told()` may have something all the same: somebody was aborted.
# - If the pass fails, roll back, and let the error go on to the caller. Ctrl-C counts: it is no `Exception`.
# - If planning fails there is nothing to roll back.


# %% exercise="MyEngine"
class MyEngine(MyExecute):
    def step(self):
        """Plan, execute, and commit or roll back; what changed."""
        ### BEGIN SOLUTION
        if self.scheduler.requests:
            plan = self.plan()
            try:
                tokens = self.execute(plan)
            except BaseException as error:
                self.rollback(plan, error)
                raise
            self.commit(plan, tokens)
        return self.told()
        ### END SOLUTION


# %% test="MyEngine" points=3
MyEngine = check("15.step", MyEngine)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `try` around `execute` alone. A bare `raise` passes on the error that was caught.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# If anybody is there: plan; try to execute; on `BaseException` roll back and raise; commit. In every case return `told()`.
#
# </details>
# <details><summary>Hint 3: "an error in planning comes through as it is" fails</summary>
#
# Your `try` is too wide. `rollback` without a plan raises an error of its own, and hides the one that matters.
#
# </details>
#
# ## Your pieces
#
# `assemble` builds a cache from `grow`, `fork`, `cow_if_shared`, `block_hash`, `match` and `publish`, and a scheduler from what
# you wrote in lessons 12 to 14. Paste your classes into the next cell and enter them by the id in their check. Where you have
# kept nothing, the course's own piece stands in.

# %% tags=["claim-own-pieces"]
mine = {}  # such as {"09.match": MyMatch, "13.chunk_size": MyChunks}
MyScheduler, MyCache = assemble(mine)
print("yours:", ", ".join(mine) or "none yet")
answers, engine = three_users(MyEngine, scheduler=MyScheduler, kv_manager=MyCache)
assert answers == {name: without_cache(prompt, 5) for name, prompt in PROMPTS.items()}
engine.check_invariants()
print("tokens that each has got:", {name: len(tokens) for name, tokens in answers.items()})
print("the same as without cache and batch; blocks free:", engine.stats().num_free_blocks, "of 16")

# %% [markdown] lang="en"
# The same failure, and everybody is served, token for token.
#
# ## Requests come when they like
#
# A server gets requests over time, and must let them in while others run.
#
# ## Exercise 15.3 - serve what comes
#
# Difficulty 3/5 · importance 4/5 · 15 minutes · about 15 lines
#
# Write `serve(engine, arrivals, clock)`. `arrivals` is a list of `(time, request_id, prompt, params)` in order of time. `clock()`
# is the time now, and `clock.wait_until(t)` lets it pass.
#
# - Queue everybody who has come with `engine.add_request(request_id, prompt, params)`, before each step.
# - `add_request` raises `ValueError` for a request that could never run. Note its id, and go on.
# - While nobody is there, wait for the next arrival. Do not step, and do not ask the clock in a circle.
# - Return `(outputs, refused)`: each request's last output by its id, and the ids that were refused.


# %% exercise="serve"
def serve(engine, arrivals, clock):
    """Serve requests as they come; (last outputs by id, ids that were refused)."""
    ### BEGIN SOLUTION
    outputs, refused, coming = {}, [], list(arrivals)
    while coming or engine.has_unfinished_requests():
        if not engine.has_unfinished_requests():
            clock.wait_until(coming[0].time)
        while coming and coming[0].time <= clock():
            _, request_id, prompt, params = coming.pop(0)
            try:
                engine.add_request(request_id, prompt, params)
            except ValueError:
                refused.append(request_id)
        for output in engine.step():
            outputs[output.request_id] = output
    return outputs, refused
    ### END SOLUTION


# %% test="serve" points=2
serve = check("15.serve", serve)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The loop goes on while somebody is still to come **or** `engine.has_unfinished_requests()`.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Nobody there? Wait until the first arrival. Then take from the front of the list while its time has come. Then step, and
# keep every output under its id: a later one replaces an earlier one.
#
# </details>
# <details><summary>Hint 3: "who comes joins at the next step" fails</summary>
#
# Look at the arrivals before every step, not only when the engine is idle. And let in all who have come, not one.
#
# </details>
#
# ## A real model
#
# Your engine, your scheduler, your cache: six requests within a second. Beside it the course's engine, and transformers,
# which takes one prompt after the other.


# %% tags=["claim-real-model", "nbval-ignore-output"]
class Stopwatch:
    """Real seconds since it was made."""

    def __init__(self):
        self.began = time.perf_counter()

    def __call__(self):
        return time.perf_counter() - self.began

    def wait_until(self, moment):
        time.sleep(max(0.0, moment - self()))


name = "smollm2-135m" if "smollm2-135m" in available_models() else "tiny-gqa"
loaded = load_model(name)
texts = ["The capital of France is", "Once upon a time", "Water boils at", "My name is", "Two and two are", "A cat is"]
greedy = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def timed(engine_class, model, gap, **parts):
    config = EngineConfig(num_blocks=64, max_num_batched_tokens=32)
    engine = engine_class(config, TorchBackend(model.model), tokenizer=model.tokenizer, **parts)
    arrivals = [Arrival(i * gap, str(i), model.tokenizer.encode(text), greedy) for i, text in enumerate(texts)]
    clock = Stopwatch()
    outputs, _ = serve(engine, arrivals, clock)
    assert len(outputs) == len(texts)
    return [outputs[str(i)].outputs[0] for i in range(len(texts))], 12 * len(texts) / clock()


own, own_rate = timed(MyEngine, loaded, 0.1, scheduler=MyScheduler, kv_manager=MyCache)
reference, _ = timed(LLMEngine, loaded, 0.1)
assert [each.token_ids for each in own] == [each.token_ids for each in reference]
for text, each in zip(texts, own):
    print(f"{text} |{each.text!r}")
print(f"{name}, six requests in half a second: {own_rate:.0f} tokens/s")

small = load_model("tiny-gqa")
own, own_rate = timed(MyEngine, small, 0.0, scheduler=MyScheduler, kv_manager=MyCache)
reference, reference_rate = timed(LLMEngine, small, 0.0)
print(f"tiny-gqa, tokens/s: yours {own_rate:.0f}, the course's {reference_rate:.0f}", end="")
if importlib.util.find_spec("transformers") is None:
    print("\ntransformers is not installed here")
else:
    import torch
    from transformers import AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hf = AutoModelForCausalLM.from_pretrained(small.path, dtype=torch.float32).eval()
    clock, theirs = Stopwatch(), []
    for text in texts:
        ids = torch.tensor([small.tokenizer.encode(text)])
        said = hf.generate(
            ids, max_new_tokens=12, min_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids)
        )
        theirs.append(said[0, ids.shape[1] :].tolist())
    print(f", transformers {12 * len(texts) / clock():.0f}, one by one")
    print("the same tokens as transformers:", sum(a.token_ids == b for a, b in zip(own, theirs)), "of", len(texts))

# %% [markdown] lang="en"
# All three write the same. These rates are of one run, on your machine, for a few short prompts. A fair comparison is a
# benchmark: `benchmarks/engine_cpu.py` does it with many requests, and stores what it found.
#
# ## The same script on vLLM
#
# `LLM` and `SamplingParams` carry vLLM's names. Change one import, and the name of the model:

# %% tags=["claim-one-import"]
# with vLLM: from vllm import LLM, SamplingParams
from mini_engine import LLM, SamplingParams

llm = LLM("tiny-gqa", enable_prefix_caching=True, max_num_seqs=8, max_num_batched_tokens=512)
params = SamplingParams(temperature=0, max_tokens=8)
for output in llm.generate(["The captain stood", "It was a bright day"], params):
    print(output.prompt, "->", output.outputs[0].text)

# %% [markdown] lang="en"
# What differs: the cache is sized by `num_blocks` or `kv_cache_bytes` here, and by `gpu_memory_utilization` there. The bar is
# `progress` here, `use_tqdm` there. [Reading vLLM](docs/reading_vllm.md) lists the rest, and maps our names to their files.
#
# ## "Ten times the throughput: three gains stacked"
#
# Paging twice, continuous batching twice, chunked prefill twice and a half: multiplied, that is ten. People draw it as a
# staircase. Try it. One service, one simulated A100, one option at a time.

# %%
predict("15.product", value=None)

# %% tags=["claim-ladder"]
climbed = measure([*rungs(), *rungs(OTHER_ORDER)[1:]], Service())
first, second = climbed[:5], climbed[5:]
print(table(first))
print("\nThe same four in another order:")
print("\n".join(table([first[0], *second]).splitlines()[2:]))
base, order = first[0].capacity, [row.capacity / first[0].capacity for row in first]
other = [1.0, *(row.capacity / base for row in second)]
print(f"\nall four carry {order[-1]:.0f} times the load of the base; each step beside the one before:")
for words, ratios in (("paging first", order), ("paging last", other)):
    print(f"  {words:<13}", ", ".join(f"{after / before:.1f}" for before, after in pairwise(ratios)))
assert first[-1].capacity == second[-1].capacity

# %% [markdown] lang="en"
# And six services, simulated beforehand by `benchmarks/ablation.py`, on an A100 or an H100. A dash: no rate holds, not even
# the smallest.

# %% tags=["claim-six-services"]
print(f"{'each step beside the one before it':<36}paging iteration chunks prefix   all")
for words, loads in pictures.ladders().items():
    told = [f"{after / before:.1f}" if before else "-" for before, after in pairwise(loads)]
    every = f"{loads[-1] / loads[0]:.0f}" if loads[0] else "-"
    print(f"{words:<36}{told[0]:>6}{told[1]:>10}{told[2]:>7}{told[3]:>7}{every:>6}")

# %% [markdown] lang="en"
# The first column is the load that each way carries: 90% of requests within half a second to the first token, and 50 ms for
# the others. `met` and what follows are at 8 requests a second.
#
# - **Paging first buys nothing.** Its slots are full of tokens, and the static batch makes everybody wait all the same.
# - **Paging last buys the most**, because the prefix cache needs blocks to share. The gain belongs to neither alone.
# - **Chunking buys no load here.** It bounds the gap between tokens: 0.725 s becomes 0.190 s. With long prompts it carries
#   2.8 times.
# - **The limits make the factor.** The same conversation: all four carry 139 times, and 59 times under wider limits.
#
# So the claim is unsupported. Each published factor has a baseline, a trace and a limit of its own. vLLM's is against an engine
# that reserved memory, Orca's against static batching. Such factors do not multiply. Report what **you** get, from where, on
# what.
#
# ## Who is there
#
# Requests come at a rate, and stay. How many are there?

# %%
predict("15.little", value=None)

# %% tags=["claim-three-ways"]
trace = load_trace("synthetic_azure_conv.csv").head(100).at_rate(4)
result = simulate(trace, gpu="l40s", max_num_batched_tokens=512, prefix_cache=False)
summary = summarize(result, ttft=1.0, tpot=0.05)
formula = summary.requests_per_s * summary.e2e.mean

options = SimulationOptions(gpu="l40s", max_num_batched_tokens=512, prefix_cache=False)
backend = options.backend()


class VirtualTime:
    __call__, wait_until = staticmethod(backend.clock), staticmethod(backend.wait_until)


engine = MyEngine(options.config(backend), backend, scheduler=MyScheduler, kv_manager=MyCache, clock=backend.clock)
arrivals = [
    Arrival(r.arrival, str(i), [i] * r.num_prompt_tokens, SamplingParams(temperature=0, max_tokens=r.num_output_tokens))
    for i, r in enumerate(trace)
]
outputs, _ = serve(engine, arrivals, VirtualTime())
there = sum(output.metrics.finish_time - arrivals[int(i)].time for i, output in outputs.items())
engines = there / (backend.now - trace.requests[0].arrival)
print(f"formula: {summary.requests_per_s:.3f} requests/s x {summary.e2e.mean:.3f} s = {formula:.2f} there at a time")
print(f"simulator, counting at every step: {summary.mean_in_system:.2f}")
print(f"your engine under your loop, on the simulator's clock: {engines:.2f}")
assert abs(formula - summary.mean_in_system) < 0.01 * formula
assert abs(engines - formula) < 0.01 * formula

# %% [markdown] lang="en"
# **Little's law**: there are rate times stay. It holds for every queue that does not grow for ever.
#
# ## Exercise 15.4 - GPUs by hand
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 5 lines
#
# Write `gpus_needed(rate, stay, tokens, work, num_blocks, block_size)`: how many GPUs are enough on average.
#
# - `rate` requests come per second, and each is there for `stay` seconds.
# - A request has `tokens` tokens at its longest, in whole blocks, on **one** GPU. A GPU has `num_blocks`.
# - A request takes `work` seconds of a GPU. A GPU has one second a second.
# - At least one GPU. `ValueError` if one GPU cannot hold a single request.
#
# Small case: 4 a second, 7 s each, one block each, 8 blocks a GPU. 28 are there, so 4 GPUs.


# %% exercise="gpus_needed"
def gpus_needed(rate, stay, tokens, work, num_blocks, block_size):
    """GPUs with room for all that are there, and time for all that come."""
    ### BEGIN SOLUTION
    from math import ceil

    seats = num_blocks // ceil(tokens / block_size)
    if seats == 0:
        raise ValueError(f"{tokens} tokens do not fit {num_blocks} blocks of {block_size}")
    return max(1, ceil(rate * stay / seats), ceil(rate * work))
    ### END SOLUTION


# %% test="gpus_needed" points=2
gpus_needed = check("15.gpus", gpus_needed)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# First the seats of one GPU: how many whole requests its blocks hold.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# `rate * stay` are there: divide by the seats, round up. `rate * work` seconds are needed every second: round up. The larger
# of both, and at least 1.
#
# </details>
# <details><summary>Hint 3: "a request lies on one GPU" fails</summary>
#
# 8 blocks hold two requests of 3 blocks. The 2 blocks that are left are room for nobody.
#
# </details>
#
# For the service that you will plan below, by hand, with the sizes of lesson 02 and the times of one simulated GPU:

# %% tags=["claim-by-hand"]
requests = load_trace("synthetic_azure_conv.csv")
longest = round(sum(r.num_prompt_tokens + r.num_output_tokens for r in requests) / len(requests))
print(f"a request has {longest:,} tokens on average; {service.RATE} come every second")
for gpu in service.PRICES:
    crowd = summarize(
        simulate(requests.head(400).at_rate(1000), gpu=gpu, prefix_cache=False, max_num_batched_tokens=512)
    )
    work = crowd.window / crowd.num_served  # 400 at once: the GPU is never idle
    stay, pool = service.one_gpu(service.DAYS[0], 4.0, gpu, 14_000, 512).e2e.mean, service.most_blocks(gpu)
    memory, both = (gpus_needed(service.RATE, stay, longest, w, pool, service.BLOCK_SIZE) for w in (0, work))
    print(f"{gpu:<14}{pool:>7,} blocks, {work:.3f} s for a request: {memory} by memory, {both} by time too")

# %% [markdown] lang="en"
# Memory is not what this service is short of: it is time. But averages know nothing of a rush, and nothing of a promise. For
# that there is the simulator.
#
# ## Too much load
#
# One L40S, and more and more requests. What is in time counts: the first token within 1 s, the others within 50 ms.

# %%
predict("15.overload", value=None)

# %% tags=["claim-load"]
grid = pictures.grid()
print("requests/s that come: ", " ".join(f"{rate:5}" for rate in pictures.RATES))
for budget in pictures.BUDGETS:
    print(f"budget {budget:5,}, in time:", " ".join(f"{pictures.kept(rate, budget):5.2f}" for rate in pictures.RATES))
panel(pictures.load, rate={4: list(pictures.RATES)}, budget={2048: list(pictures.BUDGETS)})

# %% [markdown] lang="en"
# Behind its capacity a server does not give less. It gives **almost nothing in time**: all wait together. The throughput looks
# fine all the while. So a service turns people away, or has GPUs to spare.
#
# And the budget of a step decides where that point lies. 2,048 is a common default. On this card 512 carries half as much
# again: a step of 2,048 prompt tokens is too long for 50 ms.
#
# ## "Use a paged engine, turn prefix caching on, budget before deploying"
#
# Good advice? Each part has a price and a case where it does nothing.

# %% tags=["claim-best-practice"]
row = {each.name: each for each in first}
print("paged, not reserved:")
print(f"  alone {row['+ paging'].capacity / base:.1f} times the load; last of the four ", end="")
print(f"{second[-1].capacity / second[-2].capacity:.1f} times", end="")
print(f"; slots used {first[0].slots_used:.0%} -> {row['+ paging'].slots_used:.0%}")
print("prefix cache on:")
for words, asked in (("chats on one system prompt", chats()), ("prompts that share nothing", requests.head(100))):
    with_, without = (summarize(simulate(asked.at_rate(4), prefix_cache=on)) for on in (True, False))
    print(
        f"  {words}: {with_.hit_rate:.0%} hits, mean TTFT {1000 * without.ttft.mean:.0f} -> {1000 * with_.ttft.mean:.0f} ms"
    )
print("budget before deploying:")
for budget in (512, 2048):
    most = max(rate for rate in pictures.RATES if pictures.kept(rate, budget) >= service.SHARE * rate)
    print(f"  {budget:5,} tokens a step: an L40S keeps the promise for up to {most} requests/s")

# %% [markdown] lang="en"
# - **Paged: yes.** Alone it changes nothing in this case. But sharing needs it, and reserved slots are nearly all empty.
# - **Prefix cache: yes.** It saves much where prompts share, and costs some hashing where they do not (lesson 09).
# - **Budget: yes, and not once.** It depends on the card, the lengths and the promise.
#
# ## Can you trust the simulator?
#
# Its times are a roofline with four constants. They were fitted to steps of the real engine on one part of a trace. Then it
# predicted two parts that it had not seen.

# %% tags=["claim-simulated-measured"]
comparison, about = pictures.measured()
print(f"{about['model']} on {about['machine']['cpu']}, one thread, {about['date']}")
for part, found in comparison.parts.items():
    told = ", ".join(f"{name.replace('_', ' ')} {each.error:+.1%}" for name, each in found.latencies.items())
    print(f"{part:<12} {told}")
picture(errors, comparison=comparison)

# %% [markdown] lang="en"
# The medians of the unseen parts are off by 16.4% at most. That is good enough to rank two plans, not to promise the third
# digit. And it was a CPU: for a GPU the constants here are assumptions, 50% of the peak FLOP/s and 80% of the bandwidth.
# Measure yours before you sign.
#
# ## Exercise 15.5 - plan the service
#
# Difficulty 4/5 · importance 5/5 · 30 minutes
#
# Llama-3-8B. In the busy half minute 40 requests a second come, with the lengths of chats. You promise 90% of them the first
# token within 1 s, and the others within 50 ms on average.
#
# Choose `gpu` (one of three kinds), `gpus` (each has a copy of the model, and gets an equal share), `num_blocks` of each, and
# `max_num_batched_tokens`. An hour of an L40S costs 1, of an A100 1.8, of an H100 3.5. We made these prices up.
#
# The check simulates your plan on this day and on another. It accepts whatever keeps the promise on both, and costs no more
# than 10% above the least that we found. There is more than one such plan. Use these two lines as often as you like:

# %% tags=["claim-tools"]
plan = service.Plan(gpu="l40s", gpus=10, num_blocks=14_000, max_num_batched_tokens=2048)
print(plan)
print(f"{service.share_met(plan):.1%} in time, cost {plan.cost:.1f}; fewest that do: {service.least_gpus(plan)}")
print("blocks that fit:", {gpu: service.most_blocks(gpu) for gpu in service.PRICES})


# %% exercise="my_plan"
def my_plan():
    """The machines for the service."""
    ### BEGIN SOLUTION
    return {"gpu": "l40s", "gpus": 7, "num_blocks": 14_000, "max_num_batched_tokens": 512}
    ### END SOLUTION


# %% test="my_plan" points=5
my_plan = check("15.plan", my_plan)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# `service.least_gpus(plan)` finds the number for one kind and one budget. Try the budgets first, on one kind.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# For each kind: blocks that fit, then budgets 256, 512, 1024, 2048. The price times the fewest GPUs is the cost. Take the
# cheapest.
#
# </details>
# <details><summary>Hint 3: "keeps it on a day that you have not seen" fails</summary>
#
# Your plan just keeps the promise on one day. Another day differs by a little, and that is too much. Add a GPU.
#
# </details>

# %% tags=["claim-defended"]
chosen = service.Plan(**my_plan())
print(f"{chosen}, cost {chosen.cost:.1f}")
for day in service.DAYS:
    told = service.simulated(chosen, day)
    print(f"{day}: {service.share_met(chosen, day):.1%} in time, TTFT p90 {told.ttft.p90:.2f} s, ", end="")
    print(f"TPOT p90 {1000 * told.tpot.p90:.0f} ms, {told.peak_block_utilization:.0%} of the blocks")

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# A defence of a plan answers four questions. Answer them for yours, in writing:
#
# - What is it short of: memory, reads, or arithmetic? Lessons 02 and 03, and the readout of the panel, say it.
# - What happens with a fifth more requests? Look at the curve of the panel.
# - Which of the simulator's constants would change your mind, and by how much?
# - What did the simulator leave out? `print(summary)` says it at the end.
#
# And a last guess:

# %% tags=["self-check"]
predict("15.passes", value=None)

# %% [markdown] lang="en" tags=["in-production", "limits"]
# ## In production
#
# Names as of November 2026, from the main branches. More in [Reading vLLM](docs/reading_vllm.md).
#
# | here | vLLM V1 | SGLang |
# |---|---|---|
# | `LLMEngine.step` | `EngineCore.step` | `Scheduler`, its event loop |
# | `Scheduler.schedule` | `Scheduler.schedule` | `SchedulePolicy`, `PrefillAdder` |
# | `Scheduler.commit` | `Scheduler.update_from_output` | `Scheduler.process_batch_result` |
# | `KVCacheManager.match` | `KVCacheManager.get_computed_blocks` | `RadixCache.match_prefix` |
# | `Scheduler.preempt` | `Scheduler._preempt_request` | `ScheduleBatch.retract_decode` |
#
# vLLM has no rollback: an error in the model is written down and raised, and the engine is started anew.
#
# > **What this does not show**
# >
# > - A GPU. No time here was measured on one. The plan rests on data sheets and on two assumed efficiencies.
# > - A router. We give each GPU the same requests per second. Real ones are uneven, or follow prefixes.
# > - A network, a tokenizer, a rush that lasts for an hour, a GPU that fails.
# > - Prefill and decode on separate machines, speculative decoding, several models.

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Why does the step not try again by itself?</summary>
#
# It does not know why it failed. A full GPU may be free a moment later, and a broken one never. The caller decides.
#
# </details>
# <details><summary>How much margin is right?</summary>
#
# None in general. Ask what a missed promise costs, simulate several days, and look at the worst. In this exercise one GPU of
# seven was the difference between two days.
#
# </details>
# <details><summary>Why is throughput not enough to plan with?</summary>
#
# Because it keeps rising behind the capacity, when nobody is in time any more. Goodput falls there.
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - Plan, execute, then commit or roll back: a step is true as a whole, or not at all.
# - Gains depend on what is there already, on the trace and on the promise. They do not multiply.
# - A plan is memory by Little's law, time by the roofline, and a rush by simulation.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | rollback | 回滚 | "error handling" | the step is taken back, as if it had not been planned |
# | goodput | 有效吞吐 | "throughput" | requests per second that keep every limit |
# | SLO | 服务等级目标 | "latency target" | a limit and the share of requests that must keep it |
# | Little's law | 利特尔法则 | "concurrency" | number there = rate x time there |
# | ablation | 消融实验 | "breakdown of the gains" | one option at a time, in a stated order |
#
# **Open exercises.** *Easy:* plan for twice the rate. Are twice the GPUs enough, or too many? *Medium:* write a scheduler that
# turns requests away when they would be late. How much goodput is left at twice the capacity? *Research:* prompts on one group of
# GPUs and decodes on another. When does it pay, if the K/V has to be moved?
#
# **The end, and what is next.** You have the whole of it now. Read `EngineCore.step` and `Scheduler.schedule` of vLLM, in that
# order. Then build what is missing here: speculative decoding, a router that knows prefixes, windowed cache groups.
#
# **Back:** [14 · Preemption](lessons/14_preemption.ipynb) · **From the start:** [00 · Start here](lessons/00_start_here.ipynb)
