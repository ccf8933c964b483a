"""Lesson 03, what to guess about throughput: where a step is compute bound, and the most that any batch can give."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction
from mini_engine.course.gpu_share import GPUShare, half_70b
from mini_engine.roofline import batch_for_ridge, ridge_point, throughput_ceiling

_HALF = half_70b()


def _batch(S: int, gpu: GPUShare = _HALF) -> int | None:
    per_sequence = gpu.flops_per_token + gpu.flops_per_score * S
    ridge = ridge_point(gpu.peak, gpu.bandwidth)
    return batch_for_ridge(gpu.weight_bytes, gpu.kv_bytes_per_token, S, per_sequence, ridge)


COMPUTE_BATCH = Prediction(
    "03.compute_batch",
    "The 70B model on two H100s, 1,024 tokens each: from which batch on is a whole decode step compute bound? 0 if none is.",
    _batch(1024) or 0,
    "sequences",
    mistakes=[
        (0, "There is one. Each sequence brings 71.3e9 FLOPs, and its K/V needs only 49.5e9 of them at the ridge."),
        (1, "A batch of 1 has about one FLOP per byte, and the ridge is at 295."),
        (47, "That is how many fit. A batch of 47 is still memory bound."),
        (
            1010,
            "That leaves out attention's FLOPs. Each sequence brings 1,310,720 for each of its 1,024 tokens as well.",
        ),
        (
            229,
            "That takes the FLOPs of the whole model and leaves out attention. This GPU computes half: 70e9 a token.",
        ),
        (226, "That takes the FLOPs of the whole model. This GPU computes half: 70e9 a token."),
        (222, "That takes the FLOPs of both GPUs and the bytes of one. Count both for one GPU."),
        (893, "That takes the attention of both GPUs. This one has 32 of the 64 query heads: 1,310,720 FLOPs a token."),
        (1895, "That reads the weights of both GPUs. This one reads its own half, 70e9 B."),
        (295, "That leaves out the K/V. Each sequence brings FLOPs, and bytes of its own that have to be read."),
        (296, "That leaves out the K/V. Each sequence brings FLOPs, and bytes of its own that have to be read."),
        (319, "That is the threshold of one product without K/V. Here each sequence brings bytes of its own."),
        (418, "That is where the K/V has as many bytes as the weights. Computing catches up later."),
        (949, "One too many. The quotient is 947.45, and 948 is the first whole number above."),
        (947, "Close. The quotient is 947.45, and sequences are whole."),
    ],
    because="Each sequence brings 71.3e9 FLOPs, and its K/V needs 49.5e9 of them at the ridge: 947.45, so 948.",
    rtol=0,
)

_H200 = half_70b("h200-sxm")

CEILING = Prediction(
    "03.ceiling",
    "Two H200s, the 70B model, 8,192 tokens each, as many sequences as you like: how many tokens a second at most?",
    float(throughput_ceiling(_H200.bandwidth, _H200.kv_bytes_per_token, 8192)),
    "tokens/s",
    mistakes=[
        (4.8e12 / 70e9, "That is one sequence with an empty cache. More sequences share the weights."),
        (
            2 * 4.8e12 / (163840 * 8192),
            "Both GPUs read at once, each its own half of the same K/V. Count one half once.",
        ),
        (4.8e12 / (327680 * 8192), "Each GPU holds half of the K/V heads: 163,840 B a token, not 327,680 B."),
        (989e12 / 70e9, "That is the limit of computing. Reading K/V is the lower one."),
        (4.8e12 / 163840, "That is for one cached token each. Every new token reads all 8,192."),
        (
            2 * 3.35e12 / (163840 * 8192),
            "Those are two H100s, both counted. An H200 reads 4.8e12 bytes/s, and one half of the K/V counts once.",
        ),
        (989e12 / (70e9 + 1310720 * 8192), "That is the limit of computing. Reading K/V is the lower one."),
        (
            4.8e12 / (70e9 + 163840 * 8192),
            "That is one sequence. With many, the weights are shared: only the K/V is left.",
        ),
        (989e12 / 4.8e12, "That is the ridge of an H200, in FLOP/B."),
        (3.35e12 / (163840 * 8192), "That is the ceiling of two H100s. An H200 reads 4.8e12 bytes/s."),
    ],
    because="4.8e12 / (163,840 x 8,192) = 3,576: each new token has to read its own sequence's K/V.",
)

LONGEST = Prediction(
    "03.longest",
    "The same two H200s: what is the longest context, in whole tokens, at which some batch is still compute bound?",
    max(S for S in range(1, 4096) if _batch(S, _H200)),
    "tokens",
    mistakes=[
        (1487, "That holds for two H100s. An H200 reads faster, so its ridge is lower and the end is further out."),
        (2158, "One too many. At 2,158 tokens every sequence brings more bytes than its FLOPs can pay for."),
        (2073, "That leaves out the FLOPs of attention itself. They help a little."),
        (2156, "One too few. At 2,157 tokens some batch still gets there."),
        (0, "There is one. At 1,024 tokens a batch of 948 was compute bound on two H100s."),
        (2248, "That takes the attention of both GPUs. This one has half of the query heads: 1,310,720 FLOPs a token."),
        (4314, "That takes the FLOPs of the whole model. This GPU computes half: 70e9 a token."),
        (4496, "That takes all of the model's FLOPs and one GPU's K/V. Each GPU computes half."),
        (1057, "That takes one GPU's FLOPs and both GPUs' K/V. Each GPU reads half."),
    ],
    because="70e9 + 1,310,720 S = 206.04 x 163,840 S gives S = 2,157.4.",
    rtol=0,
)
