"""A whole published trace, where MINI_ENGINE_TRACES names the folder that holds it; it takes half a minute or more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mini_engine.simulator import SimulationOptions, Simulator, summarize
from mini_engine.workload import load_trace
from tests.simulator.helpers import check_books

TRACE = Path(os.environ.get("MINI_ENGINE_TRACES", "/nonexistent")) / "AzureLLMInferenceTrace_conv.csv"


@pytest.mark.slow
@pytest.mark.skipif(not TRACE.exists(), reason="set MINI_ENGINE_TRACES to the folder of the public traces")
def test_the_azure_conversation_trace_on_one_gpu():
    trace, options = load_trace(TRACE), SimulationOptions(model="llama-3-8b", gpu="h100-sxm")
    backend = options.backend()
    simulator = Simulator(options.config(backend), backend)
    result = simulator.run(trace)
    check_books(simulator, trace, result)
    s = summarize(result)
    assert (s.num_requests, s.num_served) == (19_366, 19_365)
    assert s.rejections == {"longer than max_model_len": 1}  # its 14,050 tokens; the model knows 8,192 positions
    assert s.mean_in_system == pytest.approx(s.requests_per_s * s.e2e.mean, rel=0.02)
    assert s.slot_utilization == pytest.approx(0.994, abs=0.002)
