"""The project's traces against published statistics, and, where the originals are present, the loaders and findings against them."""

from __future__ import annotations

import hashlib
import os
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from mini_engine.geometry import paged_utilization, reservation_utilization
from mini_engine.workload import Trace, load_trace, prefix_reuse, profile, profiles, summarize

# requests, span s, rate, gap CV, then mean, p50, p90, p99, max of prompt and of output; attribution in data/traces/README.md
PUBLISHED = {
    "azure_conv": (19_366, 3_502, 5.53, 1.09, (1_154.7, 1_020, 2_734.5, 4_142, 14_050), (211.1, 129, 424, 601, 1_000)),
    "azure_code": (8_819, 3_436, 2.57, 13.15, (2_047.8, 1_469, 5_188, 7_436, 7_437), (27.9, 13, 55, 251, 1_899)),
    "mooncake_conversation": (12_031, 3_537, 3.40, 3.03, (12_035, 6_909, 27_367, 85_400, 126_195), (342.6, 350, 597, 1_119, 2_000)),
    "mooncake_synthetic": (3_993, 1_022, 3.91, 1.01, (15_325, 11_587, 38_611, 66_456, 191_378), (149.1, 69, 389, 768, 893)),
}  # fmt: skip
REUSE = {"mooncake_conversation": 0.374, "mooncake_synthetic": 0.651}
FILES = {
    "azure_conv": ("AzureLLMInferenceTrace_conv.csv", "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8"),
    "azure_code": ("AzureLLMInferenceTrace_code.csv", "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6"),
    "mooncake_conversation": ("mooncake_conversation_trace.jsonl", "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"),
    "mooncake_synthetic": ("mooncake_synthetic_trace.jsonl", "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131"),
}  # fmt: skip


@cache
def original(name: str) -> Trace:
    folder = os.environ.get("MINI_ENGINE_TRACES")
    if not folder or not (Path(folder) / FILES[name][0]).exists():
        pytest.skip("set MINI_ENGINE_TRACES to a folder with the public traces")
    path = Path(folder) / FILES[name][0]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == FILES[name][1], f"{path} is another version of the trace"
    return load_trace(path)


@cache
def ours(name: str) -> Trace:
    suffix = "jsonl" if name in REUSE else "csv"
    return load_trace(f"synthetic_{name}.{suffix}")


@pytest.mark.parametrize("name", PUBLISHED)
def test_our_traces_have_the_published_statistics(name):
    _, _, rate, cv, prompt, output = PUBLISHED[name]
    found = summarize(ours(name))
    assert found.rate == pytest.approx(rate, rel=0.01)
    assert found.gap_cv == pytest.approx(cv, rel=0.01)
    for lengths, (mean, p50, p90, p99, longest) in ((found.prompt, prompt), (found.output, output)):
        assert lengths.mean == pytest.approx(mean, rel=0.01)
        assert lengths.p50 == pytest.approx(p50, rel=0.02, abs=1)
        assert lengths.p90 == pytest.approx(p90, rel=0.02, abs=1)
        assert lengths.p99 == pytest.approx(p99, rel=0.03)
        assert 0.4 * longest < lengths.max <= longest  # a thousand requests rarely reach the longest of ten thousand
    if name in REUSE:
        assert float(found.reuse_bound) == pytest.approx(REUSE[name], abs=0.005)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_originals_have_them(name):
    requests, span, rate, cv, prompt, output = PUBLISHED[name]
    found = summarize(original(name))
    assert (found.num_requests, round(found.span), round(found.rate, 2), round(found.gap_cv, 2)) == (
        requests,
        span,
        rate,
        cv,
    )
    for lengths, (mean, p50, p90, p99, longest) in ((found.prompt, prompt), (found.output, output)):
        assert lengths.mean == pytest.approx(mean, abs=0.51)
        assert (lengths.p50, lengths.max) == (p50, longest)
        assert lengths.p90 == pytest.approx(p90, abs=0.51)
        assert lengths.p99 == pytest.approx(p99, abs=0.51)
    if name in REUSE:
        assert round(float(found.reuse_bound), 3) == REUSE[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_our_profiles_are_those_of_the_originals(name):
    wanted = profiles()[name]
    assert profile(original(name), name, wanted.attribution) == wanted


@pytest.mark.parametrize(
    ("name", "shares"),
    [("mooncake_conversation", (4.5, 21.1, 32.6, 35.5)), ("mooncake_synthetic", (8.3, 42.4, 62.4, 64.0))],
)
def test_lru_caches_on_the_originals(name, shares):
    for blocks, share in zip((1_000, 10_000, 30_000, 50_000), shares):
        assert float(prefix_reuse(original(name), blocks).by_blocks) * 100 == pytest.approx(share, abs=0.11)


def lengths(name: str) -> list[int]:
    return [request.num_prompt_tokens + request.num_output_tokens for request in original(name)]


@pytest.mark.parametrize(("name", "limit", "fit", "share"), [("azure_conv", 8192, 0.9999, 16.7), ("azure_conv", 2048, 0.853, 48.2), ("azure_code", 8192, 1, 25.3)])  # fmt: skip
def test_reserving_the_longest_length_wastes_most_of_it(name, limit, fit, share):
    fitting = [length for length in lengths(name) if length <= limit]
    assert len(fitting) / len(lengths(name)) == pytest.approx(fit, abs=1e-3)
    assert float(reservation_utilization(sum(fitting), limit * len(fitting))) * 100 == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize(
    ("block", "by_tokens", "by_request"), [(16, 99.46, 98.98), (32, 98.88, 97.91), (128, 95.62, 92.97)]
)
def test_blocks_waste_almost_nothing(block, by_tokens, by_request):
    of = lengths("azure_conv")
    assert float(paged_utilization(of, block)) * 100 == pytest.approx(by_tokens, abs=0.006)
    ratios = [Fraction(length, block * -(-length // block)) for length in of]
    assert float(sum(map(float, ratios)) / len(of)) * 100 == pytest.approx(by_request, abs=0.006)


@pytest.mark.parametrize(("block", "by_tokens"), [(16, 99.46), (32, 98.88), (128, 95.62)])
def test_blocks_waste_as_little_on_our_trace(block, by_tokens):
    """Lessons show this on the synthetic trace: it must say what the original says."""
    of = [request.num_prompt_tokens + request.num_output_tokens for request in ours("azure_conv")]
    assert float(paged_utilization(of, block)) * 100 == pytest.approx(by_tokens, abs=0.15)
    fitting = [length for length in of if length <= 8192]
    assert float(reservation_utilization(sum(fitting), 8192 * len(fitting))) * 100 == pytest.approx(16.7, abs=0.3)
