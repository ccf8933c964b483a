"""Lesson 13, what to guess: how long all streams stand still, what chunks compute and read again, and how long a step takes."""

from __future__ import annotations

from mini_engine.catalog import get_model
from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises.answers13_rereads import reread_tokens
from mini_engine.course.long_prompt import LONG, prompt_flops, prompt_seconds
from mini_engine.roofline import prefill_flops

_SMALL, _LARGE, _HALF_PEAK = "llama-3.1-8b", "llama-3.1-70b", 989e12 / 2


def _without_mask() -> float:
    spec = get_model(_SMALL)
    linear = prompt_flops(spec, LONG) - _attention()
    return (linear + 4 * spec.num_hidden_layers * spec.num_attention_heads * spec.head_dim * LONG**2) / _HALF_PEAK


def _attention() -> int:
    spec = get_model(_SMALL)
    return prefill_flops(0, LONG, spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim)


STALL = Prediction(
    "13.stall",
    "A model of 8.03e9 parameters, 32 layers and 32 heads of 128, on one H100 at half its peak of 989e12 FLOP/s. One step takes a whole prompt of 32,768 tokens. How many seconds does it last?",
    prompt_seconds(_SMALL, 1, LONG),
    "s",
    mistakes=[
        (0.5, "That is a common guess: hundreds of ms. The products alone are 1.06 s."),
        (prompt_seconds(_SMALL, 1, LONG) / 2, "That is at the full peak. At half of it, it takes twice as long."),
        (prompt_seconds(_SMALL, 1, LONG) - _attention() / _HALF_PEAK, "That leaves out attention: 2.8e14 FLOPs for a prompt of that length."),
        (_without_mask(), "That takes every token to see all others. With the causal mask it is half of that attention."),
        (prompt_seconds(_SMALL, 1, 8192), "That is a prompt of 8,192 tokens."),
        (prompt_seconds(_SMALL, 1, LONG) * 1000, "That is in ms. The question is for seconds."),
    ],
    because="2 x 8.03e9 x 32,768 = 5.26e14 FLOPs for the products and 2.81e14 for attention, over 494.5e12 FLOP/s.",
    rtol=0.03,
)  # fmt: skip

FLOPS = Prediction(
    "13.flops",
    "The prompt of 32,768 tokens is computed in 16 chunks of 2,048. By how many percent does the number of FLOPs grow, for causal attention and for the rest?",
    0,
    "%",
    mistakes=[
        (6.25, "That is what a kernel adds that fills in the square of each chunk up to its own end, masked or not. On a whole prompt the same kernel adds 100%."),
        (6, "You will read that. It is 2,048 / 32,768, rounded: what a kernel adds that computes masked scores. A whole prompt has more of those."),
        (100, "That is a whole prompt without the mask, not one in chunks."),
        (93.75, "That share of the prompt is read again. Reading is no FLOP."),
        (50, "The mask hides half of the pairs, and it hides the same ones in chunks."),
        (-1, "No less either: each token still sees all before it."),
        (1600, "Sixteen chunks are not sixteen prompts: each computes its own 2,048 tokens."),
        (1500, "Sixteen chunks are not sixteen prompts: each computes its own 2,048 tokens."),
    ],
    because="Each token is computed once, and sees the same tokens as before: 32,768 x 32,769 / 2 pairs, in whatever pieces.",
    rtol=0,
)  # fmt: skip

REREAD = Prediction(
    "13.rereads",
    "The same 16 chunks of 2,048. Each chunk reads the K and V of all tokens before it. How many tokens are read that way, in all?",
    reread_tokens(LONG, 2048),
    "tokens",
    mistakes=[
        (0, "The FLOPs are the same. But the K and V of the first chunk are read by 15 later ones."),
        (15 * 2048, "That counts each token once. The first chunk is read 15 times, the second 14 times."),
        (LONG, "That is the length of the prompt. The first chunk alone is read 15 times."),
        (2048 * 16 * 17 // 2, "That counts the chunk's own tokens too. Those are read for the first time."),
        (2048 * 16 * 15, "Twice too many: 0 + 1 + ... + 15 is 16 x 15 / 2."),
        (
            2048 * 16 * 17,
            "That counts the chunk's own tokens too, and it is twice too many: 0 + 1 + ... + 15 is 16 x 15 / 2.",
        ),
        (16 * LONG, "Not every chunk sees the whole prompt: the first one sees nothing before it."),
        (120, "That is in chunks. Each has 2,048 tokens."),
    ],
    because="2,048 x (0 + 1 + ... + 15) = 2,048 x 120.",
    rtol=0,
)

LAST_CHUNK = Prediction(
    "13.last_chunk",
    "Llama-3's 70B model on eight H100 at half their peak: the first 2,048 tokens take 74 ms, and the whole 32,768 take 1,525 ms. How many ms do the last 2,048 take?",
    1000 * prompt_seconds(_LARGE, 8, 2048, LONG - 2048),
    "ms",
    mistakes=[
        (1000 * prompt_seconds(_LARGE, 8, 2048), "The products are the same. But these tokens attend to 30,720 others."),
        (74, "The products are the same. But these tokens attend to 30,720 others."),
        (1000 * prompt_seconds(_LARGE, 8, LONG) / 16, "That is the mean of the sixteen. They grow evenly, and the first takes 74 ms."),
        (16 * 74, "Attention is the smaller part: the step does not grow sixteenfold."),
        (148, "Attention grows by a lot, the products not at all. Together it is less than twice."),
    ],
    because="The mean of sixteen is 95.3 ms and they grow evenly, so the last is as far above it as the first, 74.4 ms, is below.",
    rtol=0.02,
)  # fmt: skip

STEPS = Prediction(
    "13.steps",
    "A budget of 512 tokens, 40 people read. A prompt of 8,192 tokens arrives. After how many steps does it get its first token?",
    -(-8192 // (512 - 40)),
    "steps",
    mistakes=[
        (16, "The 40 readers take a token each: 472 of 512 are left."),
        (17, "17 chunks of 472 are 8,024 tokens. The rest needs a step too."),
        (19, "The step that computes the last chunk gives the first token."),
        (1, "The budget is 512 tokens, and the prompt has 8,192."),
        (205, "The 40 readers take a token each. The other 472 tokens of each step are for the prompt."),
        (472, "That is how many tokens of the prompt fit in a step."),
    ],
    because="8,192 / (512 - 40) is 17.4, and the step with the last chunk gives the first token.",
    rtol=0,
)
