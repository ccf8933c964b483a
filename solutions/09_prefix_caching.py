# ---
# jupyter:
#   course:
#     translated: false
# ---

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
# request to the engine, waits for the first token, and says how long that took.


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
# 2,520 tokens were computed, and only 520 of them are different. Each user waited for the same 400 tokens again.
#
# Their K and V were in the cache, and were freed with the request. So: keep a freed block as it is until its room is needed,
# and look there first. That is a **prefix cache**.
#
# ## A name for a block
#
# How does the next request find the block? By a name made from its content. But content means more than its own tokens. K
# and V of a token depend on **all tokens before it**. So the name of block $k$ is a hash of its tokens and of the
# name before:
#
# $$H_k = \text{hash}(H_{k-1}, \text{tokens of block } k, \text{extra})$$
#
# $H_{-1}$ is nothing, as nothing comes before the first block. `extra` is what else K and V depend on: the model, the
# adapter (LoRA), and a **salt**, of which more later.
#
# "Prefix caching uses a radix tree" is a mistake that people make about vLLM: it has these names. SGLang and
# [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/latest/features/kvcache.html) have the tree. Its nodes hold tokens.

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
# And only look: change nothing.
#
# Small case: blocks of 4, and 1 to 8 is cached. The prompt 1 to 8 finds one block, and 1 to 9 finds two.


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
# For name number i: find the block. If there is none, stop. If `self.held(block)` is not
# `request.token_ids[: (i + 1) * self.block_size]`, stop. Append it.
#
# </details>
# <details><summary>Hint 3: "believes tokens, not names" fails</summary>
#
# Two heads can collide, and the same tokens follow. Compare all that `held` gives.
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
# unused for longest (**LRU**).
# But the blocks of a prompt become free at the same moment. In which order do they queue?

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
# A tail is worthless without its head. So the engine frees in reverse, and tails go first.
#
# ## How large must the cache be?
#
# 40 chats of 5 turns on one system prompt, in the order of their arrival. The trace is synthetic (`multi_turn` in
# `mini_engine.workload`). Each prompt holds all that was said before.

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
# Second, **timing**. Mallory wants to know what Ann asked. He cannot see her prompt. He can send guesses, and take the time.

# %% tags=["claim-salt", "nbval-ignore-output"]
server = LLM("tiny-gqa", backend="numpy").engine
guesses = {who: [draw.randrange(2000) for _ in range(320)] for who in ("divorce", "a new job", "a diagnosis")}
for words, salts in (("no salt", (None, None)), ("a salt each", ("ann", "mallory"))):
    server.reset_prefix_cache()
    ask(server, "ann", guesses["a new job"], salts[0])
    timed = {guess: ask(server, guess, tokens, salts[1]) for guess, tokens in guesses.items()}
    assert [found for _, found in timed.values()] == [0, 304 if words == "no salt" else 0, 0]
    print(f"{words:<12}", ", ".join(f"{guess}: {found} in {wait:.1f} ms" for guess, (wait, found) in timed.items()))

# %% [markdown] lang="en"
# Without a salt the clock tells him. With one, Ann's blocks have names that he cannot make. The price: salted users share
# nothing, unless a salt stands for a whole company.
#
# ## When it does nothing

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
engine = LLMEngine(EngineConfig(num_blocks=64, block_size=16), AuditBackend())
for name in ("miss", "hit"):
    before = engine.stats()
    ask(engine, name, rules, answer=33)
    after = engine.stats()
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
# Here is one of the fourteen:
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
# That does not make it a cache to use. Left as they are, to keep this short: blocks are found before they are computed. A
# hit may be the whole prompt. Names have 64 bits, tokens are not compared, and -1 raises OverflowError.
#
# The check also makes random calls, and compares what is held, free and findable.


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

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# A chat, second turn:

# %% tags=["self-check"]
predict("09.second_turn", value=None)

# %% [markdown] lang="en"
# ## All of them, side by side
#
# Lessons 06 to 09 in one table. 24 users share 96 tokens of rules, and every third wants four answers. All five memories
# have 4,096 slots and get the same arrivals.
#
# - `used`, `idle`: shares of the slots taken. `outside`: free, but too little for who waits.
# - `held`: slots taken times steps, in thousands. `steps`: how long all took.
# - `copied`: slots whose K and V were moved. `shared`: the most that was saved at one time by holding a block together.
# - `again`: prompt tokens that had been computed before. In a contiguous memory the other answers may copy the prompt.

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
# **Back:** [08 · Copy-on-write](lessons/08_copy_on_write.ipynb) · **Next:** 10 · Triton GQA decode kernel (to come)
