"""What is particular to lesson 09: names, hits and publication, broken ones that run in the engine, and the matrix of caches."""

from __future__ import annotations

import itertools
import random
import xml.etree.ElementTree as ET

import pytest

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.backends import AuditBackend
from mini_engine.backends.audit import KVCorruption
from mini_engine.cache import BlockHasher, KVCacheManager, PrefixIndex
from mini_engine.course.cache_requests import CacheUser, look_up, prefill
from mini_engine.course.check import run
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import answers09_cache, answers09_names, find
from mini_engine.course.exercises.e09_predictions import SYSTEM_70B_FLOPS
from mini_engine.course.figures import new_figure
from mini_engine.course.own_prefix_cache import (
    HeadFirst,
    PrefixCacheLab,
    TrustingIndex,
    hit_share,
    manager_with,
    prompts_of,
)
from mini_engine.course.panels import p09_prefix_caching as pictures
from mini_engine.geometry import active_params, prefix_hit_tokens
from mini_engine.roofline import prefill_flops, prefill_saving, prefill_time
from mini_engine.workload import load_trace, prefix_reuse

GREEDY = SamplingParams(temperature=0, max_tokens=6)


def serve(manager, prompts, num_blocks=20, **options):
    config = EngineConfig(num_blocks=num_blocks, block_size=4, **options)
    engine, tokens = LLMEngine(config, AuditBackend(), kv_manager=manager), {}
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, GREEDY)
    while engine.has_unfinished_requests():
        for output in engine.step():
            tokens[output.request_id] = output.outputs[0].token_ids
        engine.check_invariants()
    return tokens, engine.stats()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("answer", [answers09_cache.Matches, answers09_cache.MatchesByLength, answers09_cache.Publishes, manager_with(answers09_names.packed)])  # fmt: skip
def test_answers_run_in_the_engine_like_its_own_manager(answer, seed):
    draw = random.Random(seed)
    prompts = [[*range(1, 9)] * draw.randrange(3) + [draw.randrange(3) for _ in range(draw.randrange(1, 14))] for _ in range(14)]  # fmt: skip
    options = {"max_num_batched_tokens": 10, "max_num_seqs": 3}
    assert serve(answer, prompts, **options) == serve(KVCacheManager, prompts, **options)
    assert serve(answer, prompts, **options)[1].num_prefix_hit_tokens > 0


def test_a_learners_methods_are_the_ones_that_run():
    calls = []

    class Counting(answers09_cache.Matches):
        def match(self, request):
            calls.append("match")
            return answers09_cache.Matches.match(self, request)

        def publish(self, request):
            calls.append("publish")
            return answers09_cache.Publishes.publish(self, request)

    def naming(parent, token_ids, extra):
        calls.append("name")
        return answers09_names.block_hash(parent, token_ids, extra)

    model = LLM("tiny-gqa", backend="numpy", kv_manager=Counting, num_blocks=64)
    named = LLM("tiny-gqa", backend="numpy", kv_manager=manager_with(naming), num_blocks=64)
    plain = LLM("tiny-gqa", backend="numpy", enable_prefix_caching=False, num_blocks=64)
    prompts = [[*range(5, 45), 7], [*range(5, 45), 9]]
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    for prompt in prompts:
        tokens = [llm.generate([prompt], params, progress=False)[0].outputs[0].token_ids for llm in (model, named, plain)]  # fmt: skip
        assert tokens[0] == tokens[1] == tokens[2]
    assert model.engine.stats().num_prefix_hit_tokens == named.engine.stats().num_prefix_hit_tokens == 32
    assert {"match", "publish", "name"} <= set(calls)


def test_publishing_what_is_not_computed_corrupts_the_engine():
    class AtAllocation(answers09_cache.AllBlocks):
        def allocate(self, request, num_tokens):
            hit = super().allocate(request, len(request.token_ids))
            self.publish(request)
            return hit

    def after_an_abort(manager):
        config = EngineConfig(num_blocks=16, block_size=4, max_num_batched_tokens=8)
        engine = LLMEngine(config, AuditBackend(), kv_manager=manager)
        engine.add_request("a", list(range(24)), GREEDY)
        engine.step()
        engine.abort("a")
        engine.add_request("b", [*range(24), 30], GREEDY)
        while engine.has_unfinished_requests():
            engine.step()
        return engine.stats().num_prefix_hit_tokens

    with pytest.raises(KVCorruption):
        after_an_abort(AtAllocation)
    assert after_an_abort(answers09_cache.Publishes) == 8


def test_a_collision_is_believed_by_the_trusting_index_only():
    class OneName(BlockHasher):
        def hash_block(self, parent, token_ids):
            return b"x"

    def found(index):
        cache = KVCacheManager(8, 2, hasher=OneName(), prefix_index=index)
        prefill(cache, CacheUser("a", [1, 2, 3]))
        return look_up(cache, [5, 6, 7])

    assert (found(TrustingIndex), found(PrefixIndex)) == (2, 0)


def test_enter_needs_tokens_and_a_parent_that_is_known():
    cache = PrefixCacheLab(4, 2)
    user = CacheUser("a", [1, 2, 3])
    cache.allocate(user, 3)
    for i in (-1, 1, 2):
        with pytest.raises(ValueError, match="has no 2 tokens yet"):
            cache.enter(user, i)
    assert (cache.enter(user, 0), cache.enter(user, 0)) == (1, 0)
    assert cache.held(cache.find(cache.names(user)[0])) == [1, 2]


PROMPTS = prompts_of(load_trace("synthetic_multi_turn_block16.jsonl"))


def test_hits_grow_with_the_cache_and_end_at_the_bound_that_is_computed_another_way():
    trace = load_trace("synthetic_multi_turn_block16.jsonl")
    assert [len(prompt) for prompt in PROMPTS] == [request.num_prompt_tokens for request in trace]
    shares = [hit_share(PROMPTS, KVCacheManager(size, 16)) for size in (96, 512, 1024, 1536, 4096)]
    assert shares == sorted(shares)
    assert shares[-1] == shares[-2] == pytest.approx(float(prefix_reuse(trace).by_tokens), abs=0.01)
    assert shares[0] < 0.54
    assert all(hit_share(PROMPTS, KVCacheManager(size, 16, prefix_index="radix")) == share for size, share in zip((96, 1024), (shares[0], shares[2])))  # fmt: skip
    for size, share in zip((96, 512, 1024), shares):
        head = hit_share(PROMPTS, HeadFirst(size, 16))
        assert share - 0.02 < head <= share
        assert head == pytest.approx(
            float(prefix_reuse(trace, size).by_tokens), abs=0.02
        )  # an LRU that frees heads first


def test_the_numbers_about_seventy_billion_parameters():
    spec, gpu = get_model("llama-3-70b"), get_gpu("h100-sxm")
    shape = spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim
    flops = prefill_flops(active_params(spec), 2000, *shape)
    assert flops == SYSTEM_70B_FLOPS
    assert float(prefill_time(flops, gpu.bf16_flops, 2, 1)) == pytest.approx(0.14533, abs=1e-5)
    mfu = find(Prediction, "09.mfu").answer
    assert mfu == pytest.approx(100 * flops / (2 * 2 * gpu.bf16_flops)) == pytest.approx(7.27, abs=0.01)
    longest = find(Prediction, "09.longest_prompt").answer
    for length, enough in ((longest, True), (longest + 1, False)):
        assert (prefill_saving(2000, length, 16, spec).token_share >= 0.9) == enough
    assert pictures.seconds(2000, 0, 50) == pytest.approx(0.29066, abs=1e-5)


def test_no_time_is_below_the_read_of_the_weights():
    reading = pictures.reading()
    assert reading == pytest.approx(141.107e9 / (2 * 3.35e12), rel=1e-3)
    assert pictures.seconds(16, 1984, 100) == reading > pictures.computing(16, 1984, 100)
    assert pictures.seconds(500, 2000, 100) == pictures.computing(500, 2000, 100) > reading
    for mfu, longest, best in ((50, 2217, 93.2), (100, None, 87.3)):
        saved = {length: pictures.saved(2000, length, mfu) for length in range(2000, 2400)}
        assert max(saved.values()) == pytest.approx(best, abs=0.05)
        assert max((length for length in saved if saved[length] >= 90), default=None) == longest


def test_predictions_about_hits_agree_with_the_engine():
    prompt = [random.Random(1).randrange(64) for _ in range(2000)]
    for prediction, first, second, output in (
        ("09.full_hit", prompt, lambda said: prompt, 1),
        ("09.second_turn", prompt[:40], lambda said: [*said, *range(10)], 24),
    ):
        engine = LLMEngine(EngineConfig(num_blocks=256, block_size=16), AuditBackend())
        params = SamplingParams(temperature=0, max_tokens=output)
        engine.add_request("first", first, params)
        while engine.has_unfinished_requests():
            outputs = engine.step()
        engine.add_request("second", second([*first, *outputs[-1].outputs[0].token_ids]), params)
        while engine.has_unfinished_requests():
            outputs = engine.step()
        assert outputs[-1].num_cached_tokens == find(Prediction, prediction).answer


def test_the_panel_says_what_the_formula_says():
    for prefix, prompt, mfu in itertools.product((0, 250, 8000), (100, 2100, 10000), (5, 100)):
        text = pictures.ttft(new_figure(), prefix, prompt, mfu)
        hit = prefix_hit_tokens(min(prefix, prompt), prompt, 16)
        assert f"{hit:,} tokens hit, {prompt - hit:,} computed" in text
        assert ("cut to" in text) == (prefix > prompt)
        assert text.endswith("the weights alone take 21.1 ms to read")


@pytest.mark.parametrize(
    ("prefix", "prompt", "mfu"), [(2000, 2100, 50), (0, 3000, 100), (8000, 100, 50), (250, 10000, 5)]
)
def test_every_prompt_has_its_dot_on_the_curve_and_bars_have_one_scale(prefix, prompt, mfu):
    figure = new_figure()
    pictures.ttft(figure, prefix, prompt, mfu)
    bars, axes = figure.axes
    curve, _, dot = axes.lines
    x, y = dot.get_xdata()[0], dot.get_ydata()[0]
    assert curve.get_ydata()[list(curve.get_xdata()).index(x)] == pytest.approx(y)
    assert axes.get_ylim()[0] < 0 < axes.get_ylim()[1]
    assert curve.get_xdata()[-1] >= max(prompt, prefix + 8000)
    assert bars.get_ylim()[1] in (200, 500, 1000, 2000, 5000, 10000, 20000)
    assert max(bar.get_height() for bar in bars.patches) <= bars.get_ylim()[1]


def test_blocks_are_entered_from_the_first_on():
    cache = PrefixCacheLab(8, 2)
    user = CacheUser("a", [1, 2, 3, 4, 5])
    cache.allocate(user, 5)
    with pytest.raises(ValueError, match="block 1 is entered before block 0"):
        cache.enter(user, 1)
    assert (cache.enter(user, 0), cache.enter(user, 1)) == (1, 1)


def test_hash_block_refuses_what_depends_on_the_process():
    """hash() of a text differs from process to process; the check sees it by its 64 bits and by -1 and -2."""
    exercise = find(Exercise, "09.hash_block")
    assert [o.property for o in run(exercise, answers09_names.sixteen_bytes_of_a_number) if o.status == "no"] == [
        "any token id can be named"
    ]


def test_the_diagram_is_sound():
    source, words = pictures.chain_and_tree()
    ET.fromstring(source)
    assert source.count(">h2</text>") == 2
    assert "S2 after S1 is h2, and after X1 it is h7" in words
