"""transformers' `generate`: one batch of everything, padded to the longest prompt and run to the longest output, fp32."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

PAD = 0


class Peer:
    def __init__(self, model: str, requests: list[dict]) -> None:
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()
        self.model.generation_config.eos_token_id = None

    @torch.inference_mode()
    def run(self, requests: list[dict]) -> list[list[int]]:
        longest = max(len(request["prompt"]) for request in requests)
        padding = [longest - len(request["prompt"]) for request in requests]
        ids = torch.tensor([[PAD] * pad + request["prompt"] for pad, request in zip(padding, requests)])
        mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
        most = max(request["out"] for request in requests)
        config = GenerationConfig(do_sample=False, max_new_tokens=most, pad_token_id=PAD)
        written = self.model.generate(ids, attention_mask=mask, generation_config=config)[:, longest:].tolist()
        return [row[: request["out"]] for row, request in zip(written, requests)]

    def details(self) -> dict:
        return {}
