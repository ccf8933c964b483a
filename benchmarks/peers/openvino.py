"""OpenVINO GenAI's continuous batching: F16 weights, fp32 compute and cache, prefix caching on."""

from __future__ import annotations

import numpy as np
import openvino
import openvino_genai

PROPERTIES = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class Peer:
    def __init__(self, model: str, requests: list[dict]) -> None:
        config = openvino_genai.SchedulerConfig()
        config.cache_size = 1  # GiB
        config.max_num_batched_tokens = 2048
        config.max_num_seqs = 256
        config.enable_prefix_caching = True
        config.dynamic_split_fuse = True
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(model, config, "CPU", PROPERTIES)
        self.num_added = 0

    def run(self, requests: list[dict]) -> list[list[int]]:
        handles = []
        for request in requests:
            config = openvino_genai.GenerationConfig()
            config.max_new_tokens, config.ignore_eos, config.do_sample = request["out"], True, False
            prompt = openvino.Tensor(np.array([request["prompt"]], dtype=np.int64))
            handles.append(self.pipeline.add_request(self.num_added, prompt, config))
            self.num_added += 1
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        return [list(handle.read_all()[0].generated_ids) for handle in handles]

    def details(self) -> dict:
        return {"versions": {"openvino-genai": openvino_genai.__version__}, **PROPERTIES}
