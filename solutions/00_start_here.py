# ---
# jupyter:
#   course:
#     translated: false
# ---

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
# (If SmolLM2 is installed, a real model of 135 million parameters answers. If not, a small model that comes with the
# course takes over. It has read six novels by Jane Austen and *Moby Dick*, so do not ask it about France.)

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

# %% [markdown] lang="en"
# Now give the loop a real model. The loop is yours, or the reference while your exercise is open. The engine runs the
# same model with a loop of its own. Both must say the same.

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

# %%
predict("00.tokens_run", value=None)

# %% [markdown] lang="en" tags=["question"]
# <details><summary><b>Question.</b> Which of those token-forwards are wasted?</summary>
#
# All but 6. The first pass needs its 4 tokens. Each later pass brings one token that the model has not seen. The rest
# are repeats. And what they compute does not change, as lesson 01 shows.
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

# %% tags=["diagram", "claim-two-phases"]
svg(*pictures.life_of_a_request())

# %% [markdown] lang="en"
# ## Turn the sliders
#
# Each row is one pass through the model. A dark square is a token that runs. A light square is a token whose K and V
# come from the cache. Left of the dotted line is the prompt, right of it what the model has written.

# %%
panel(pictures.passes, prompt=(4, 1, 12), output=(6, 1, 12))

# %% [markdown] lang="en"
# The same for three sizes as a table, the last one too large to draw.

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

# %% [markdown] lang="en"
# ## Where this leads
#
# Six steps carry the whole course. Each one is the answer to a problem that the step before leaves behind.

# %% tags=["diagram", "claim-course-map"]
svg(*pictures.course_map())

# %% [markdown] lang="en"
# | step | because | so | lessons |
# |---|---|---|---|
# | 1 | the K and V of past tokens never change | compute them once and keep them | 00, 01 |
# | 2 | every kept token takes bytes | know how many, before they run out | 02 (to come) |
# | 3 | every new token reads all of them again | decoding waits for memory, not for arithmetic | 03 (to come) |
# | 4 | bytes are what counts | keep fewer of them for each token | 04, 05 (to come) |
# | 5 | reserved memory stays empty | hand memory out in pages, share them, read them with a kernel | 06 to 11 (to come) |
# | 6 | free memory is room for more requests | schedule many requests at once, down to the whole engine | 12 to 15 (to come) |
#
# Only lessons 00 and 01 are here now. The others are the plan.

# %% [markdown] lang="en"
# ## Is your machine ready?
#
# The doctor looks at versions, at the model files and at the notebook set-up. If something is missing, it names the
# command that mends it. In a terminal, `mini-engine doctor` says more.

# %% tags=["nbval-ignore-output"]
from mini_engine.doctor import examine

for finding in examine():
    print(f"{finding.status:>7}  {finding.name}", f"-> {finding.remedy}" if finding.remedy else "")

# %% [markdown] lang="en" tags=["self-check"]
# ## Check yourself
#
# A request has a prompt of 100 tokens and gets 20 new ones, with a KV cache. How many forward passes does it take? How
# many tokens run in the first of them? Put your numbers in place of `None` and run the cell again.

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

# %% [markdown] lang="en" tags=["limits"]
# > **What this does not show**
# >
# > - The seconds above belong to a very small model on a CPU. Only the counts carry over to other machines.
# > - One request at a time. Serving many at once changes what is fast and what is slow.
# > - Fewer token-forwards is not the same as less time in equal measure. Lesson 01 measures both.
# > - The vLLM figures come from one paper, one model and its own workloads.

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
