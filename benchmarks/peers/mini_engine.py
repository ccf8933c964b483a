"""mini_engine: the paged engine over torch, fp32, prefix caching on."""

from __future__ import annotations

import tracemalloc

import torch

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import TorchBackend
from mini_engine.geometry import param_breakdown
from mini_engine.models import load_model

BLOCK_SIZE = 16
NUM_QUEUED = 1000


class Peer:
    def __init__(self, model: str, requests: list[dict]) -> None:
        torch.set_num_threads(1)
        self.model = load_model(model).model
        num_blocks = sum(-(-(len(request["prompt"]) + request["out"]) // BLOCK_SIZE) for request in requests)
        self.backend = TorchBackend(self.model)
        self.engine = LLMEngine(EngineConfig(num_blocks=max(num_blocks, 16), block_size=BLOCK_SIZE), self.backend)
        self.requests = requests
        self.num_added = 0

    def run(self, requests: list[dict]) -> list[list[int]]:
        names = self.add(requests)
        token_ids = {}
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                if output.finished:
                    token_ids[output.request_id] = output.outputs[0].token_ids
        return [token_ids[name] for name in names]

    def add(self, requests: list[dict]) -> list[str]:
        names = []
        for request in requests:
            names.append(f"request {self.num_added}")
            self.num_added += 1
            params = SamplingParams(temperature=0, max_tokens=request["out"], ignore_eos=True)
            self.engine.add_request(names[-1], request["prompt"], params)
        return names

    def details(self) -> dict:
        return {
            "weight_bytes": self.weight_bytes(),
            "pool_bytes": sum(pool.nbytes for pool in self.backend.pools.values()),
            "prefix_hit_tokens": self.engine.stats().num_prefix_hit_tokens,
            f"bytes_of_{NUM_QUEUED}_queued": self.queued_bytes(),
        }

    def weight_bytes(self) -> int:
        """Weights as held. fbgemm, where it keeps them in fp16, pads a matrix's inputs to a multiple of 512."""
        spec, parts = self.model.spec, param_breakdown(self.model.spec)
        embedding = spec.vocab_size * spec.hidden_size
        layers = parts.attention + parts.mlp
        if self.model.embed.itemsize > 2:
            return self.model.embed.itemsize * (layers + 2 * embedding + parts.norms)
        down = spec.num_hidden_layers * spec.hidden_size * spec.intermediate_size
        reads_hidden = layers - down + embedding  # every other matrix, as in a Llama heads x head_dim is hidden_size
        padded = reads_hidden * _pad(spec.hidden_size) + down * _pad(spec.intermediate_size)
        return round(2 * (padded + embedding) + 4 * parts.norms)

    def queued_bytes(self) -> int:
        """What 1,000 waiting requests add, their prompts (new integers each, as from a tokenizer) included."""
        tracemalloc.start()
        sizes = [len(request["prompt"]) for request in self.requests]
        first = 1000  # beyond the small integers that Python shares
        for number in range(NUM_QUEUED):
            size = sizes[number % len(sizes)]
            self.add([{"prompt": list(range(first + number, first + number + size)), "out": 16}])
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return held


def _pad(inputs: int) -> float:
    return -(-inputs // 512) * 512 / inputs
