# ---
# jupyter:
#   course:
#     translated: false
# ---

# %% [markdown] lang="en" tags=["goals"]
# # 06 · Fragmentation
#
# **Half of the memory is free, and the request does not fit.**
#
# 60 to 90 minutes · plain Python, no GPU · after lesson 02
#
# After this lesson you can
#
# - say of every slot of a cache whether it is used, and if not, why not;
# - write first fit and the joining of buddies, and serve a request trace with them;
# - say what "60% to 80% waste" was measured on, and on what it was not.

# %%
from fractions import Fraction

from mini_engine import EngineConfig, LLMEngine
from mini_engine.backends import AuditBackend
from mini_engine.cache import BlockPool
from mini_engine.cache.contiguous import RESERVATIONS, BuddyAllocator, FirstFitAllocator, NoRunError
from mini_engine.course import bugs_caught, check, panel, picture, predict, svg
from mini_engine.course.film import Arrival, film, frame, frames, replay
from mini_engine.course.own_allocators import HoleListAllocator, JoiningBuddyAllocator
from mini_engine.course.panels import p06_fragmentation as pictures
from mini_engine.course.serving_memory import NoModel, serve
from mini_engine.geometry import frag_breakdown, paged_utilization, reservation_waste
from mini_engine.workload import load_trace, summarize

# %% [markdown] lang="en"
# ## The pain
#
# A server has room for the K and V of 8,192 tokens. Call the room for one token a **slot**. Eight requests come, and each
# gets 1,024 slots in a row. Four of them finish. Then somebody asks for 1,500.

# %% tags=["claim-stranded"]
memory = FirstFitAllocator(8192)
for name in "ABCDEFGH":
    memory.allocate(name, 700, reserve=1024, final=900)  # 700 tokens now, 900 in the end
for name in "ACEG":
    memory.free(name)
print("free slots:", sum(size for _, size in memory.holes()))
try:
    memory.allocate("I", 1400, reserve=1500)
except NoRunError as error:
    print("I:", error)

# %% [markdown] lang="en"
# 4,096 slots are free, and a request of 1,500 is refused.
#
# The cause is a habit from [lesson 01](lessons/01_numpy_kv_cache.ipynb): attention read `k[0:S]`, one array. So all
# slots of a request form one **run**, and a run cannot grow once a neighbour stands behind it. The server has to reserve
# the whole run at the start, when nobody knows how long the answer will be.
#
# Then a slot can be lost in three ways. The names are the vLLM paper's
# ([Kwon et al., 2023](https://arxiv.org/abs/2309.06180)):

# %% tags=["diagram"]
svg(*pictures.three_wastes())

# %% [markdown] lang="en"
# - **reserved**: it waits for a token that this request will make. Nobody else can have it meanwhile.
# - **internal**: it lies inside a run and will never be used, because the answer turns out shorter.
# - **external**: it lies between runs, in a hole too small for the request that waits.
#
# In pictures of this lesson and in its film, a colour says whose a slot is, and a pattern what is in it. Only the future
# separates the first two. While a request runs, no server can tell them apart.
#
# How bad can it get? First: 2,048 slots are reserved, and the request ends with 200 tokens.

# %%
predict("06.idle", value=None)

# %% [markdown] lang="en"
# Second: a model whose longest context is 8,192, and a request that ends with 1,024 tokens.

# %%
predict("06.share", value=None)

# %% tags=["claim-reservation"]
print(reservation_waste.explain(200, 2048))
print()
print(reservation_waste.explain(1024, 8192))
for used, reserved in ((200, 2048), (1024, 8192)):
    waste = reservation_waste(used, reserved)
    print(
        f"\n{used:,} of {reserved:,}: {float(1 - waste):.2%} used, {reserved - used:,} slots idle, {float(waste):.2%}",
        end="",
    )

# %% [markdown] lang="en"
# 90.23% and 87.50% of the run are never used. Move the sliders: `made` says how much of the answer is stored, in
# percent. As it grows, reserved slots turn into used ones. Internal ones stay what they are, to the end. And where the
# run is too short, the answer is cut off: a run cannot grow.
#
# One detail. The last token of an answer is never stored, since no token follows that would look back at it. So a prompt
# of 50 and an answer of 10 fill 59 slots. The slider `answer` counts stored tokens.

# %%
panel(
    pictures.reservation,
    reserved={2048: [512, 1024, 2048, 8192]},
    prompt=(100, 50, 450, 50),
    answer={100: [50, 100, 400, 1600]},
    made=(40, 0, 100, 10),
    height=4.2,
)

# %% [markdown] lang="en"
# ## Exercise 6.1 - count the slots
#
# Difficulty 2/5 · importance 5/5 · 10 minutes · about 6 lines
#
# Write `count_waste(runs, holes, next_size)`. It returns four numbers: used, reserved, internal and external slots.
#
# - Each run has `run.size` slots, of which `run.used` hold a token now. In the end `run.final` will.
# - `holes` is a list of (start, size).
# - The request that waits needs `next_size` slots in a row. A hole of exactly that size is large enough.
#
# Small case: one run with size 12, used 5, final 7, and holes (12, 4) and (24, 8). With `next_size` 6 the answer is
# `(5, 2, 5, 4)`.


# %% exercise="count_waste"
def count_waste(runs, holes, next_size):
    """(used, reserved, internal, external) slots of a contiguous memory."""
    ### BEGIN SOLUTION
    used = sum(run.used for run in runs)
    reserved = sum(run.final - run.used for run in runs)
    internal = sum(run.size - run.final for run in runs)
    external = sum(size for _, size in holes if size < next_size)
    return used, reserved, internal, external
    ### END SOLUTION


# %% test="count_waste" points=1
count_waste = check("06.count_waste", count_waste)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Inside a run there are two borders, `used` and `final`. They cut it into three parts.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Reserved is `final - used`, internal is `size - final`. Add them up over all runs. For external, add the sizes of those
# holes that are smaller than `next_size`.
#
# </details>
# <details><summary>Hint 3: "external: slots of holes too small" fails</summary>
#
# Look at each hole by itself. Their sum does not matter, since a run lies in one hole.
#
# </details>
#
# Now count the memory of the first cell: with your function, and with the package's own counter.

# %% tags=["claim-three-wastes"]
for needed in (1024, 1500):
    used, reserved, internal, external = count_waste(list(memory.runs.values()), memory.holes(), needed)
    print(
        f"next request {needed:,}: used {used:,}, reserved {reserved:,}, internal {internal:,}, external {external:,}",
        end="",
    )
    print(f"; the rest, {8192 - used - reserved - internal - external:,}, is free")
    assert (used, reserved, internal, external) == memory.waste(needed)[:4]

# %% [markdown] lang="en"
# The same holes are free for one request and lost for another. External waste depends on who waits.
#
# ## First fit
#
# Where does a run go? The simplest rule is **first fit**: into the first hole that is large enough. An allocator takes
# two functions, one on the way out and one on the way back.
#
# ## Exercise 6.2 - take a run
#
# Difficulty 2/5 · importance 4/5 · 10 minutes · about 6 lines
#
# Write `first_fit(holes, size)`. `holes` is a list of (start, size), sorted by start. The run lies at the start of the
# first hole with at least `size` slots.
#
# - Return two things: the start of the run, and the list of holes that are left, sorted too.
# - Return `None` if no hole is large enough.
# - Make a new list, and leave `holes` as it is. A hole of 0 slots is no hole.
#
# Small case: `first_fit([(0, 2), (5, 4)], 3)` is `(5, [(0, 2), (8, 1)])`.


# %% exercise="first_fit"
def first_fit(holes, size):
    """(start, holes that are left), or None when no hole has `size` slots."""
    ### BEGIN SOLUTION
    for i, (start, room) in enumerate(holes):
        if room >= size:
            rest = [(start + size, room - size)] if room > size else []
            return start, holes[:i] + rest + holes[i + 1 :]
    return None
    ### END SOLUTION


# %% test="first_fit" points=1
first_fit = check("06.first_fit", first_fit)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Go through `holes` with `enumerate`, and stop at the first one that is large enough.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# The new list has three parts: the holes before, what is left of this hole, the holes after. The middle part is one hole
# that starts `size` slots later, or nothing.
#
# </details>
# <details><summary>Hint 3: "leaves its inputs unchanged" fails</summary>
#
# `holes.remove` and `holes[i] = ...` change the caller's list. `holes[:i] + rest + holes[i + 1 :]` is a new one.
#
# </details>
#
# ## Exercise 6.3 - give it back
#
# Difficulty 3/5 · importance 4/5 · 10 minutes · about 8 lines
#
# Write `give_back(holes, start, size)`: the list of holes with the run `(start, size)` among them, sorted. Holes that
# touch become one. Again, make a new list.
#
# Small case: `give_back([(0, 4), (6, 4)], 4, 2)` is `[(0, 10)]`.


# %% exercise="give_back"
def give_back(holes, start, size):
    """The holes, with this run back among them; holes that touch are joined."""
    ### BEGIN SOLUTION
    joined = []
    for first, room in sorted([*holes, (start, size)]):
        if joined and joined[-1][0] + joined[-1][1] == first:
            first, room = joined[-1][0], joined.pop()[1] + room
        joined.append((first, room))
    return joined
    ### END SOLUTION


# %% test="give_back" points=2
give_back = check("06.give_back", give_back)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# Put the run into the list and sort. Then walk through it: does this hole start where the one before ends?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Keep a new list. If the last hole in it ends at `first`, replace it by a larger one. If not, append the hole.
#
# </details>
# <details><summary>Hint 3: "joins both" fails</summary>
#
# One run can close the gap between two holes. Then three become one.
#
# </details>
#
# Your two functions are now an allocator. Here it does what the package's own does, address by address:

# %% tags=["claim-own-allocator"]
yours, ours = HoleListAllocator(64, first_fit, give_back), FirstFitAllocator(64)
for allocator in (yours, ours):
    for name, size in (("A", 20), ("B", 10), ("C", 20), ("D", 14)):
        allocator.allocate(name, size // 2, reserve=size)
    allocator.free("B")
    allocator.free("D")
    allocator.allocate("E", 4, reserve=8)
    print(allocator.holes(), allocator.waste(next_size=15))
assert yours.memory_map() == ours.memory_map()

# %% [markdown] lang="en"
# First fit adds nothing to a run. But requests that come and go leave holes of odd sizes. Could you push the runs
# together? Yes: that is **compaction**. It copies the K and V of every run it moves, while nobody may read them.
#
# ## Buddies
#
# A **buddy allocator** has order built in. Runs have 1, 2, 4, 8 ... slots. A free run of 8 can be split into two
# **buddies** of 4. When both are free again, they join. It is fast, and holes stay large. The price for a request of
# 1,100 slots?

# %%
predict("06.buddy_run", value=None)

# %% [markdown] lang="en"
# ## Exercise 6.4 - join buddies
#
# Difficulty 3/5 · importance 3/5 · 15 minutes · about 6 lines
#
# Splitting is given. Write the way back: `buddy_join(holes, start, size)`. All sizes are powers of two, and a run of
# `size` slots starts at a multiple of `size`.
#
# - A run's buddy is the other half of the run that both were split from. It has the same size. Its start is `start ^ size`:
#   that one bit is flipped. So (8, 4) and (12, 4) are buddies, and (4, 4) and (8, 4) are not.
# - If the buddy is one of the holes, join them: a hole twice as large, which starts where the lower one did. Then look for
#   *its* buddy, and so on.
# - Return the new list, sorted by start.
#
# Small case: `buddy_join([(2, 2), (4, 4)], 0, 2)` is `[(0, 8)]`.


# %% exercise="buddy_join"
def buddy_join(holes, start, size):
    """The holes with this run among them, joined with its buddy as long as that is free."""
    ### BEGIN SOLUTION
    left = list(holes)
    while (start ^ size, size) in left:
        left.remove((start ^ size, size))
        start, size = min(start, start ^ size), 2 * size
    return sorted([*left, (start, size)])
    ### END SOLUTION


# %% test="buddy_join" points=2
buddy_join = check("06.buddy_join", buddy_join)

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# The buddy of (start, size) is the hole `(start ^ size, size)`, if there is one. Is it `in holes`?
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Copy the list. While the buddy is in it: remove it, take the smaller start, double the size. At the end put (start,
# size) in and sort.
#
# </details>
# <details><summary>Hint 3: "a buddy that is partly busy is left alone" fails</summary>
#
# A hole may start where the buddy does and be smaller. Then a part of the buddy is in use. Compare sizes too.
#
# </details>
#
# ## On a trace
#
# Now for lengths as they come. This trace is synthetic. A generator made it with the mean lengths of a [public trace of
# conversations](https://github.com/Azure/AzurePublicDataset) from Azure. What share is used if each request reserves
# 8,192 slots?

# %%
predict("06.trace_share", value=None)

# %% tags=["claim-trace"]
trace = load_trace("synthetic_azure_conv.csv")
print(summarize(trace))
lengths = [(request.num_prompt_tokens, request.num_output_tokens) for request in trace]
totals = [prompt + output - 1 for prompt, output in lengths]  # stored in the end
print()
for reserved in (8192, 2048):
    fit = [total for total in totals if total <= reserved]
    share, refused = 1 - reservation_waste(sum(fit), reserved * len(fit)), 1 - len(fit) / len(totals)
    print(f"{reserved:,} reserved: {float(share):.1%} of the slots are used, {refused:.1%} of the requests do not fit")

# %% [markdown] lang="en"
# 16.7%. With 2,048 slots the share rises, but 17.6% of the requests are turned away.
#
# That counts each request at its end, and most of its life it has fewer tokens. So let us serve. A memory of 65,536
# slots gets 200 requests of the trace. They wait in line, first come, first served. A prompt takes one step, each
# further token another. As long as somebody waits, your `count_waste` counts every slot.
#
# How long is a run? The vLLM paper compares three rules, all in a buddy allocator, with paging:
#
# | rule | reserves | can you build it? |
# |---|---|---|
# | max | the longest context, here 8,192 | yes, and people did |
# | pow2 | the prompt, and the answer rounded up to a power of two | only if you know the answer's length |
# | oracle | exactly what will be stored | the same |
# | paged | nothing: it takes 16 slots at a time, when they are needed | yes, in lesson 07 |
#
# The last one is the engine of this course. A stand-in for the model returns token 0, since only slots are counted.

# %% tags=["claim-shares"]
SLOTS, line = 65_536, lengths[:200]
ours = {}
for rule in RESERVATIONS:
    ours[rule] = serve(line, JoiningBuddyAllocator(SLOTS, buddy_join), reserve=rule, count=count_waste)
engine = LLMEngine(
    EngineConfig(num_blocks=SLOTS // 16, block_size=16, max_num_batched_tokens=16_384, enable_prefix_caching=False),
    NoModel(),
)
ours["paged"] = serve(line, engine)
published = {  # figure 2 of Kwon et al., 2023, in percent: used, reserved, internal, external
    "max": (20.4, 13.3, 57.3, 8.9),
    "pow2": (26.8, 17.9, 13.6, 41.6),
    "oracle": (38.2, 25.2, 0.0, 36.6),
}


def row(name, shares, note=""):
    parts = (shares.token, shares.reserved, shares.internal, shares.external)
    print(f"{name:<10}" + "".join(f"{float(part):10.1%}" for part in parts) + note)


print(f"{'ours':<10}{'used':>10}{'reserved':>10}{'internal':>10}{'external':>10} = rounding + holes   at a time")
for name, served in ours.items():
    rounding = served.rounding_share
    row(name, served.shares, f"{rounding:11.1%}{float(served.shares.external) - rounding:8.1%}{served.running:12.1f}")
print(f"the paged engine put {engine.stats().num_preemptions} requests back into the line")
print("\npublished")
for name, parts in published.items():
    print(f"{name:<10}" + "".join(f"{part:9.1f}%" for part in parts))
print(f"{'paged':<10}{96.3:9.1f}%")
assert ours["max"].used < ours["max"].internal
order = [served.shares.token for served in ours.values()]
assert order == sorted(order)
assert order[-1] > 0.95

# %%
groups = {
    "ours, on the trace": {name: served.shares for name, served in ours.items()},
    "published": {name: frag_breakdown(*map(str, parts)) for name, parts in published.items()}
    | {"paged": Fraction("0.963")},  # the paper splits the rest no further
}
picture(pictures.shares, groups=groups, height=3.6)

# %% [markdown] lang="en"
# The order is the same: max, pow2, oracle, paged. Paging holds 97.2% here and 96.3% in the paper. Six times as many
# requests run at a time as with max: 50.4 against 8.
#
# Even the oracle, which knows every length, uses about half. It loses 25.6% of the memory to rounding, and 15.5% to
# holes. (The paper has no column for rounding, and its oracle has no internal waste. So we count rounding as external
# too.)
#
# But the middle differs: 51.7% and 51.9% for 26.8% and 38.2%. Nothing was fitted, so there is something to explain. The
# paper's requests had short prompts and long answers, in contexts of 2,048. Ours have long prompts, and a prompt is used
# from the first step on. If that is the reason, swapping prompt and answer should show it.

# %% tags=["claim-swapped"]
swapped = [(output, prompt) for prompt, output in line]
print(f"{'swapped':<10}{'used':>10}{'reserved':>10}{'internal':>10}{'external':>10}")
for rule in RESERVATIONS:
    row(rule, serve(swapped, BuddyAllocator(SLOTS), reserve=rule).shares)
print("\nnot swapped, first fit instead of buddies")
for rule in RESERVATIONS:
    row(rule, serve(line, HoleListAllocator(SLOTS, first_fit, give_back), reserve=rule, count=count_waste).shares)

# %% [markdown] lang="en"
# Now pow2 and oracle use 21.1% and 31.7%, and their reserved part has grown several times over. Where runs fit the
# request, it matters who talks longer, the user or the model. Max hardly moves: it always gives 8,192.
#
# The allocator matters as well. With first fit the oracle reaches 72.6%. So "contiguous" names no single number.
#
# ## What "60% to 80%" was measured on
#
# You will read that "PyTorch wastes 60% to 80% of the KV cache". The figure comes from a [blog
# post](https://blog.vllm.ai/2023/06/20/vllm.html) of the vLLM team in 2023. Their paper says what was measured: their own
# versions of Orca, a server that reserves before it runs, with OPT-13B and lengths from ShareGPT. Used shares of 20.4% to
# 38.2% are wastes of 61.8% to 79.6%.
#
# PyTorch reserves nothing by itself. Hugging Face's `DynamicCache` concatenates: each token makes a new, longer array.
# No slot is idle. It pays in another coin:

# %% tags=["claim-concatenate", "claim-measured-on"]
print("waste, from the used shares:", ", ".join(f"{100 - parts[0]:.1f}%" for parts in published.values()))
there, added = 1000, 1000
copied = sum(range(there, there + added))  # to append one token, all tokens so far are copied
peak = (there + added - 1) + (there + added)  # the old array and the new one
print(f"{there:,} + {added:,} tokens: {copied:,} tokens copied, {peak:,} slots at the peak for {there + added:,} tokens")

# %% [markdown] lang="en"
# It copies 1,499,500 tokens to add 1,000. And while it copies, the old array and the new one are both there, each in one
# piece: 3,999 slots for 2,000 tokens.
#
# ## Two films
#
# Watch it happen. Seven requests arrive at the same steps in two memories of 256 slots. One film shows a buddy allocator
# that even knows each length. The other shows the paged engine, in blocks of 16, where hatched slots are the empty rest
# of a block. Put the focus on the slider and press the arrow keys. Find the step at which G arrives.

# %%
arrivals = [
    Arrival("a", 0, 20, 12),  # comes before step 0, with a prompt of 20 tokens, and gets 12 more
    Arrival("b", 0, 6, 30),
    Arrival("c", 0, 40, 8),
    Arrival("d", 1, 10, 20),
    Arrival("e", 2, 30, 16),
    Arrival("f", 6, 24, 24),
    Arrival("g", 10, 50, 10),
]
engine = LLMEngine(EngineConfig(num_blocks=16, block_size=16, enable_prefix_caching=False), AuditBackend(), record=True)
films = {
    "buddy": replay(arrivals, BuddyAllocator(256), reserve="oracle"),
    "paged": replay(arrivals, engine),
}
film(films)

# %% tags=["claim-film"]
frame(films, 12)

# %% [markdown] lang="en"
# Step 12. At the buddies' G still waits. Its prompt of 50 and answer of 10 fill 59 slots, so it needs 64 in a row, and
# 32 are free. In the paged memory G has been running since step 10, in blocks 14, 15, 16 and 6. The last one lies far
# from the others, and nobody minds.
#
# Now compare the counters. The buddies have 224 slots allocated for 107 tokens, the blocks 208 for 161. Do formula,
# engine and picture agree on that? And what of I, which was refused in the first cell? Here it asks the engine's block
# pool. Once as it was there, with 700 tokens each. And once at worst: all eight have filled their 1,024 slots.

# %% tags=["claim-stranded-no-more", "claim-three-ways"]
shown = next(one for one in frames(engine) if one.step == 12)
event = next(event for event in engine.film if event["kind"] == "step" and event["step"] == 12)
stored = [sequence["num_computed_tokens"] for sequence in event["sequences"]]
in_blocks = (16 - len(event["free_blocks"])) * 16
print(f"formula: {paged_utilization(stored, 16)} of {stored} in blocks of 16 is used")
print(f"engine:  {sum(stored)} tokens, {in_blocks} slots in blocks that are not free")
print(f"picture: {shown.counters.live} of {shown.counters.allocated}")
assert paged_utilization(stored, 16) == Fraction(sum(stored), in_blocks) == shown.counters.utilization
assert "allocated 208, live 161" in frame(films, 12).words

for tokens in (700, 1024):
    pool = BlockPool(8192 // 16)
    held = {name: pool.allocate(-(-tokens // 16)) for name in "ABCDEFGH"}  # blocks, rounded up
    left = pool.num_free * 16
    for name in "ACEG":
        pool.release(held[name])
    blocks = sorted(pool.allocate(-(-1500 // 16)))
    pieces = sum(block - 1 not in blocks for block in blocks)
    print(f"eight of {tokens:,} tokens leave {left:,} slots; four end; I gets {len(blocks)} blocks, pieces: {pieces}")

# %% [markdown] lang="en" tags=["claim-find-the-bugs"]
# With 700 tokens each, 2,560 slots were never handed out, and I need not even have waited. At worst it gets what others
# gave back, in pieces. To blocks it makes no difference.
#
# ## Exercise 6.5 - find the bugs
#
# Difficulty 4/5 · importance 4/5 · 20 minutes · about 20 lines
#
# An allocator fails quietly. So write the test first. Your function is given `make`, and `make(12)` is a new allocator of 12 slots. Raise AssertionError if it is broken. Nine broken ones are waiting. Each is
# tried alone, for at most 10 million steps of your code.
#
# - `allocate(name, tokens, reserve=n, final=m)` returns the start of a run of n slots. The request has `tokens` now and m in the
#   end, or n if you leave m out. `NoRunError` if no hole is large enough: then nothing has changed, and the same name
#   may ask again. `ValueError` if it has a run already.
# - `append(name, k)` adds k tokens. `ValueError` if the request would have more than its `final` ones.
# - `free(name)` takes the whole run back, and a second time it is a `KeyError`.
# - `holes()` lists the holes in order, those that touch as one. `waste(next_size=1)` is (used, reserved, internal, external,
#   free).
# - Where a run goes is the allocator's business. Best fit is right too, and must pass.
#
# Here is one of the nine. It passes every test that fills its runs to the end:
#
# ```python
# def free(self, request_id):
#     run = self.runs[request_id]
#     run.size = max(run.used, 1)
#     super().free(request_id)
# ```


# %% exercise="my_tests"
def my_tests(make):
    """Raise AssertionError if allocators made by make(capacity) are broken."""
    ### BEGIN SOLUTION
    memory = make(12)
    starts = {name: memory.allocate(name, 1, reserve=4, final=3) for name in "abc"}
    assert sorted(starts.values()) == [0, 4, 8]
    assert memory.waste() == (3, 6, 3, 0, 0)
    memory.append("a", 2)
    assert refuses(ValueError, memory.append, "a")  # it has its 3 tokens
    low, middle, high = sorted(starts, key=starts.get)
    memory.free(low)
    memory.free(high)
    assert memory.waste(5)[3:] == (8, 0)
    assert memory.waste(4)[3:] == (0, 8)
    for _ in range(2):  # the second time, its name must not be known
        assert refuses(NoRunError, memory.allocate, "d", 1, reserve=5)
        assert memory.holes() == [(0, 4), (8, 4)]
    memory.free(middle)
    assert memory.holes() == [(0, 12)]
    assert refuses(KeyError, memory.free, middle)
    assert memory.allocate("d", 1, reserve=12) == 0
    ### END SOLUTION


def refuses(kind, call, *arguments, **named):
    """Whether the call raises this kind of error."""
    try:
        call(*arguments, **named)
    except kind:
        return True
    return False


# %% test="my_tests" points=3
my_tests = bugs_caught(my_tests, "06")

# %% [markdown] lang="en"
# <details><summary>Hint 1: where to look</summary>
#
# For each bug that got away, the check says where to look. `refuses(KeyError, memory.free, "a")` is true if the call
# raises that error.
#
# </details>
# <details><summary>Hint 2: the steps</summary>
#
# Fill 12 slots with three runs of 4, with one token each and a `final` of 3. Look at `waste()`. Free the lowest and the
# highest, and ask for 5 slots, twice. Free the last, and ask for all 12.
#
# </details>
# <details><summary>Hint 3: a right allocator is refused</summary>
#
# Do not expect request "a" at slot 0. Sort the starts, and find out who lies lowest: `sorted(starts, key=starts.get)`.
#
# </details>
#
# ## When contiguous is right, and when paging is not
#
# Three cases for the other side:

# %% tags=["claim-last-block", "claim-counter-example"]
same = [(512, 512)] * 256  # a batch job: every request alike
served = serve(same, FirstFitAllocator(SLOTS), reserve="max", max_len=1024)
row("all alike", served.shares, "   used, reserved, internal, external: contiguous, first fit")
print(f"one request of 17 tokens in blocks of 16: {float(paged_utilization([17], 16)):.1%} used")
print(f"all requests of the trace in blocks of 16: {float(paged_utilization(totals, 16)):.2%}", end="")
print(f", of 128: {float(paged_utilization(totals, 128)):.2%}")
worst = max(length for length in range(1, 1000) if paged_utilization([length], 16) < Fraction("0.96"))
print(f"96% in blocks of 16: on average from {7.5 * 0.96 / 0.04:.0f} tokens on, where 7.5 slots stay empty;")
print(f"the longest request that uses less has {worst} tokens")

# %% [markdown] lang="en"
# - **Equal lengths.** A batch job whose requests are all alike, with a run of 1,024 for each: nothing external, next to
#   nothing internal. The quarter that is reserved remains, which paging would use.
# - **Short requests.** Paging still loses the end of the last block. "Zero waste" is wrong: 17 tokens in blocks of 16 use 53.1%.
#   From 354 tokens on, 96% is certain.
# - **Reading.** A contiguous run is read in one sweep. A paged one needs a table and a kernel that follows it, as you
#   will see in lesson 07.
#
# There is a third way. The GPU's own page tables can make scattered memory look contiguous: vAttention ([Prabhu et al.,
# 2024](https://arxiv.org/abs/2405.04437)). Kernels stay as they were, but the driver's pages are large, often 2 MiB.

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# A model of 13e9 parameters in bf16 keeps 819,200 B of K and V for each token. A GPU has 12 GiB for them. First, how many
# requests run if each reserves 2,048 slots? Then, how many of 500 tokens are held in blocks of 16?

# %% tags=["self-check"]
room, per_token = 12 * 2**30, 2 * 40 * 40 * 128 * 2  # K and V, 40 layers, 40 heads of 128, 2 bytes
print(f"{room:,} B / {per_token:,} B = {room // per_token:,} slots in {room // 2**30} GiB")
predict("06.reserved_fit", value=None)
predict("06.paged_fit", value=None)

# %% [markdown] lang="en" tags=["in-production"]
# ## In production
#
# Names as of 2026: the main branches of vLLM and SGLang, and Transformers 5.24.0.
#
# | here | vLLM | SGLang | Transformers |
# |---|---|---|---|
# | reserve for the longest | no longer | no longer | `StaticCache`, `max_cache_len` |
# | concatenate | - | - | `DynamicCache` |
# | hand out blocks | `BlockPool` | `TokenToKVPoolAllocator` | - |
# | slots of a block | `--block-size` | `--page-size`, by default 1 | - |
# | the longest request | `--max-model-len` | `--context-length` | `max_position_embeddings` |
#
# With paging, `--max-model-len` reserves nothing. It only says which requests are refused.

# %% [markdown] lang="en" tags=["limits"]
# > **What this does not show**
# >
# > - Time. A step here is a step, however many requests run in it.
# > - Arrivals. All requests wait from the start. A quiet server wastes slots that nobody misses.
# > - The original trace. Ours is synthetic, and 200 of its requests.
# > - The paper's experiment. We have neither its lengths nor its baselines, so only the order can be compared.
# > - Memory outside the cache. PyTorch's own allocator fragments as well.
# > - Preemption. The paged engine put 35 requests back into the line. Lesson 14 counts what that costs.

# %% [markdown] lang="en" tags=["question"]
# ## Questions that people ask
#
# <details><summary>Is external fragmentation impossible with paging?</summary>
#
# Yes, as long as all blocks have one size: any free block serves any request. A prompt may still wait because too few are
# free. The paged row counts those as external, 2.3%.
#
# </details>
# <details><summary>Why not guess the length of the answer?</summary>
#
# People do, and it helps schedulers. For memory a guess that is too short is a run that cannot grow.
#
# </details>
# <details><summary>Is the reserved part really wasted?</summary>
#
# For hundreds of steps another request could have run there.
#
# </details>
# <details><summary>Does more used memory make a server faster?</summary>
#
# It lets more requests run in each step. In decode that is nearly free ([lesson 03](lessons/03_roofline.ipynb)) until
# other limits bite.
#
# </details>

# %% [markdown] lang="en" tags=["zh"]
# ## In three lines
#
# - A run in one piece has to be reserved before its length is known. Slots are then lost as reserved, internal or external.
# - How many depends on the rule, the allocator, and on who talks longer. On our trace max uses 15.6%, the paged engine 97.2%.
# - "60% to 80%" was measured on servers that reserve. Concatenating wastes no slots, but copies all of them for each token.
#
# | term | Chinese | what people say | what it is |
# |---|---|---|---|
# | slot | 槽位 | "cache entry" | room for the K and V of one token |
# | internal fragmentation | 内部碎片 | "padding" | slots in a run that are never used |
# | external fragmentation | 外部碎片 | "holes" | free slots in pieces too small |
# | buddy allocator | 伙伴分配器 | "powers of two" | runs that are halved and joined again |
# | compaction | 内存整理 | "defragmentation" | moving runs together, by copying |
#
# **Open exercises.** *Easy:* let `first_fit` take the tightest hole. Does the oracle's share rise on the trace?
# *Medium:* add compaction to `HoleListAllocator`, and count the slots that are copied. Against how much waste?
# *Research:* the used share of the buddy oracle depends on how lengths lie between powers of two. Are there lengths for
# which it beats first fit?
#
# **Back:** [05 · KV quantization](lessons/05_kv_quantization.ipynb) · **Next:** 07 · Block tables (to come)
