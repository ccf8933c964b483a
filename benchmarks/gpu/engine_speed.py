"""The engine's tokens a second on a model of Llama-3-8B's shape, its weights random and made on the device."""

from __future__ import annotations

import time
from typing import Any

import torch

from gpu.bench import Bench
from mini_engine.backends import TorchBackend, TritonBackend
from mini_engine.catalog import ModelSpec
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.models import random_model
from mini_engine.sampling import SamplingParams

LLAMA_3_8B = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
TINY = {
    "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "intermediate_size": 32, "vocab_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
BACKENDS = {"triton": TritonBackend, "torch": TorchBackend}
SECONDS_A_CASE = 15


def engine_speed(bench: Bench, seconds: float) -> None:
    """Batches of 1, 32 and 128 requests, 512 tokens each and then 64 more, by the two backends."""
    shape = TINY if bench.dry else LLAMA_3_8B
    spec = ModelSpec(name="random", architecture="LlamaForCausalLM", model_type="llama", rope_theta=500000.0, **shape)
    weights = (
        2 * (spec.hidden_size * 2 * spec.vocab_size + spec.num_hidden_layers * 218_112_000) if not bench.dry else 0
    )
    if not bench.dry and torch.cuda.mem_get_info()[0] < weights + (20 << 30):
        bench.row("engine", skipped=f"{weights / 2**30:.0f} GiB of weights and 20 GiB for the rest do not fit")
        return
    began = time.monotonic()
    dtype = torch.float32 if bench.dry else torch.bfloat16
    model = random_model(spec, device=bench.device, dtype=dtype, drawn_on_device=True)
    bench.row("engine", what="weights made", seconds=None if bench.dry else round(time.monotonic() - began, 1))
    cases = [(backend, batch) for batch in (32, 1, 128) for backend in BACKENDS]
    for backend, batch in bench.within("engine", cases, seconds):
        about = {"backend": backend, "requests": batch if not bench.dry else min(batch, 2)}
        bench.attempt("engine", about, lambda: generate(bench, model, BACKENDS[backend], about["requests"]))  # noqa: B023


def generate(bench: Bench, model: Any, backend: type, requests: int) -> dict[str, Any]:
    """Tokens a second of prefill and of decode, timed apart: decode from the step on in which all requests decode."""
    prompt, new = (5, 3) if bench.dry else (512, 64)
    config = EngineConfig(
        num_blocks=requests * -(-(prompt + new) // 16) + 8, max_num_seqs=requests, max_num_batched_tokens=max(2048, requests),
        enable_prefix_caching=False,
    )  # fmt: skip
    engine = LLMEngine(config, backend(model))
    for warm in (True, False):  # once for what is compiled and set up on first use
        tokens = torch.randint(model.spec.vocab_size, (requests, prompt), generator=torch.Generator().manual_seed(0))
        for number, ids in enumerate(tokens.tolist()):
            params = SamplingParams(temperature=0.0, max_tokens=4 if warm and not bench.dry else new, ignore_eos=True)
            engine.add_request(f"{warm}-{number}", ids, params)
        before = engine.stats()
        began = time.monotonic()
        while engine.stats().num_prefill_tokens - before.num_prefill_tokens < requests * prompt:
            engine.step()
        prefilled, first = time.monotonic(), engine.stats().num_decode_tokens
        cut = False
        while engine.has_unfinished_requests() and not cut:
            engine.step()
            cut = not bench.dry and time.monotonic() - prefilled > SECONDS_A_CASE
        ended = time.monotonic()
    decoded = engine.stats().num_decode_tokens - first
    found: dict[str, Any] = {"prompt": prompt, "decoded": decoded}
    if not bench.dry:
        found |= {
            "prefill tok/s": round(requests * prompt / (prefilled - began)),
            "decode tok/s": round(decoded / (ended - prefilled), 1),
            "ms a step": round(1e3 * (ended - prefilled) * requests / max(decoded, 1), 2),
        }
    return found
