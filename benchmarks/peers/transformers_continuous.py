"""transformers' continuous batching: sdpa over a paged cache, fp32, block sharing on (its default)."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

PAGE_SIZE, MAX_BATCH_TOKENS = 32, 512


class Peer:
    def __init__(self, model: str, requests: list[dict]) -> None:
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()
        self.num_blocks = sum(-(-(len(request["prompt"]) + request["out"]) // PAGE_SIZE) + 1 for request in requests)

    def run(self, requests: list[dict]) -> list[list[int]]:
        generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=16)
        batching = ContinuousBatchingConfig(
            page_size=PAGE_SIZE, num_blocks=max(self.num_blocks, 16), max_batch_tokens=MAX_BATCH_TOKENS
        )
        token_ids: dict[str, list[int]] = {}
        with self.model.continuous_batching_context_manager(
            generation_config=generation, continuous_batching_config=batching
        ) as manager:
            for number, request in enumerate(requests):
                manager.add_request(request["prompt"], request_id=str(number), max_new_tokens=request["out"])
            while len(token_ids) < len(requests):
                result = manager.get_result(timeout=1)
                if result is None:
                    if not manager.is_running():
                        raise RuntimeError("transformers' batching thread ended before every request was done")
                elif result.error is not None:
                    raise RuntimeError(result.error)
                elif result.is_finished():
                    token_ids[result.request_id] = result.generated_tokens
        return [token_ids[str(number)] for number in range(len(requests))]

    def details(self) -> dict:
        return {"page_size": PAGE_SIZE, "max_batch_tokens": MAX_BATCH_TOKENS}
