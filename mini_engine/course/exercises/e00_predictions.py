"""Lesson 00, predictions: how many tokens and passes the loop takes."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction

TOKENS_RUN = Prediction(
    "00.tokens_run",
    "The prompt has 4 tokens and you want 3 new ones. Every pass reruns the whole sequence. How many token-forwards?",
    sum(range(4, 4 + 3)),
    "token-forwards",
    mistakes=[
        (3, "Those are the passes. Each pass runs every token of the sequence so far."),
        (4 + 3 - 1, "That is the count when every token runs once. Here each pass starts again from the first token."),
        (4 + 3, "That counts every token once. Here each pass starts again from the first token."),
        (4 * 3, "Three passes, yes, but the sequence grows: the second pass has 5 tokens, the third has 6."),
        (5 + 6 + 7, "The first pass has only the prompt, 4 tokens. The first new token is what comes out of it."),
        ((4 + 3) * 3, "The sequence is not at its full length from the start. It grows by one token a pass."),
    ],
    because="4 + 5 + 6: the first pass has the prompt, each later one has one token more.",
    rtol=0,
)

PASSES = Prediction(
    "00.passes",
    "With a KV cache, a prompt of 100 tokens, 20 new tokens. How many forward passes?",
    20,
    "passes",
    mistakes=[
        (19, "Those are the decode passes. The prefill pass comes before them, and gives a new token too."),
        (21, "The prefill pass gives the first new token already, so 1 + 19 passes are enough."),
        (119, "That counts token-forwards. The 100 prompt tokens share one pass."),
        (120, "That counts tokens. The 100 prompt tokens share one pass."),
        (100, "That is the prompt. Its tokens share one pass. Passes are counted by the new tokens."),
        (101, "The 100 prompt tokens share one pass."),
        (1, "The prompt needs one pass, but every further token needs the one before it."),
    ],
    because="1 prefill pass gives the first token, 19 decode passes give the others.",
    rtol=0,
)

FIRST_PASS = Prediction(
    "00.first_pass",
    "The same request. How many tokens run in the first pass?",
    100,
    "tokens",
    mistakes=[
        (20, "Those are the new tokens. They do not exist yet when the first pass runs."),
        (1, "That is a decode pass. The first pass fills the cache with the whole prompt."),
        (120, "The 20 new tokens do not exist yet."),
        (101, "The first new token comes out of this pass. It runs in the next one."),
    ],
    because="Prefill: the whole prompt at once.",
    rtol=0,
)
