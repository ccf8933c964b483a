"""Lesson 04, numbers to guess before they are computed: what a latent cache holds, and what each GPU holds of it."""

from __future__ import annotations

from mini_engine.catalog import get_model
from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises.e04_flops import DEEPSEEK, mla_flops
from mini_engine.geometry import kv_bytes_per_token_per_gpu

V2, V3 = get_model("deepseek-v2"), get_model("deepseek-v3")

CACHED_NUMBERS = Prediction(
    "04.cached_numbers",
    "DeepSeek-V2, 128 heads: keys of 128 + 64 numbers, values of 128, a latent of 512. Numbers kept per token and layer?",
    V2.latent_dim,
    mistakes=[
        (512, "The latent alone. The rope key has to be kept too: its position is turned into it."),
        (512 + 128, "A head's 128 key numbers are made from the latent, as its values are. They are not kept."),
        (512 + 128 + 64, "Of the 128 + 64 only the 64 are kept. The 128 are made from the latent."),
        (2 * 512, "There is one latent. Key and value are both made from it."),
        (512 + 128 * 64, "All 128 heads share one rope key."),
        (2 * (512 + 64), "There is no second half: the values come from the same latent."),
        (128 * (128 + 64 + 128), "Those are the keys and values of every head. They are what is not kept."),
        (2 * 128 * 128, "That is multi-head attention. It keeps keys and values of every head."),
    ],
    because="512 for the latent and 64 for the rope key, which all heads share: 576.",
    rtol=0,
)  # fmt: skip

SCALE_ROOT = Prediction(
    "04.scale_root",
    "tiny-mla: 32 numbers of a head's key come from the latent of 64, and 16 carry the position. The scale is 1 / sqrt(n). n?",
    32 + 16,
    mistakes=[
        (32, "Half of the story: the part with the position is multiplied and added too."),
        (16, "That is the part with the position only. The other 32 are in the same sum."),
        (64 + 16, "So long are the vectors after absorption. But the score is the same number as before it."),
        (64, "The latent is what is kept. A score is the product of a query and a key."),
        (32 + 16 + 64, "The latent and the key made from it are not both in the product."),
        (256, "That is the width of the model."),
        ((32 + 16) ** 0.5, "That is the root. n is what stands under it."),
        ((32 + 16) ** -0.5, "That is the scale. n is what stands under its root."),
    ],
    because="A score is a sum of 32 + 16 products, however it is computed.",
    rtol=0.002,
)  # fmt: skip

PER_GPU = Prediction(
    "04.per_gpu",
    "DeepSeek-V3 keeps 70,272 B a token. Eight GPUs share out its 128 heads. Bytes of that on each GPU?",
    kv_bytes_per_token_per_gpu(V3, 8),
    "B",
    mistakes=[
        (70_272 // 8, "Heads can be shared out. But every head reads the whole latent, so every GPU needs all of it."),
        (70_272 * 8, "That is what the eight GPUs hold together."),
        (70_272 // 128, "The latent is not made of 128 parts: each head reads all of it."),
    ],
    because="Each GPU's 16 heads need the whole latent: 70,272 B on each, 562,176 B together.",
    rtol=0.005,
)


def _ratio(T: int, S: int) -> float:
    """FLOPs expanded over FLOPs absorbed, for the last T of S tokens of DeepSeek-V2."""
    return mla_flops(T, S, *DEEPSEEK, False) / mla_flops(T, S, *DEEPSEEK, True)


SMALL_CHUNK = Prediction(
    "04.small_chunk",
    "DeepSeek-V2, 16 new tokens after 4,080 cached ones. How many times fewer FLOPs does the absorbed form take?",
    _ratio(16, 4096),
    "times",
    mistakes=[
        (_ratio(1, 4096), "That is one new token. Sixteen share the expanding of all others, so it costs each of them less."),
        (1 / _ratio(16, 4096), "That is the other way round: absorbed over expanded."),
        (_ratio(4096, 4096), "That is a whole prompt, where absorbing takes more FLOPs."),
        (16, "The number of new tokens alone does not say it. Call `mla_flops` twice and divide."),
        (_ratio(1, 4096) / 16, "Nearly: each of the 16 costs about the same absorbed. But attending over expanded keys grows with them too."),
    ],
    because="mla_flops(16, 4096, ...) is 1.428e11 expanded and 1.876e10 absorbed: 7.6 times.",
    rtol=0.02,
)  # fmt: skip
