"""A model with a sliding window is served within its window, and says so when more is asked of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.models import load_weights
from tests.oracle import ROW_TOLERANCE, GrowingCache, full_logits, row_error, save_random_model, transformers_logits

WINDOW = 24
IDS = np.random.default_rng(1).integers(0, 131, size=40).tolist()
WINDOWED = {
    "mistral": {"sliding_window": WINDOW},
    "qwen2": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 2},
    "qwen3": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 0},
}
NAMED = rf"{WINDOW} \(its sliding_window of {WINDOW} tokens; .* keep prompt and output within the window"
BACKENDS = ["torch", "numpy"]


@pytest.fixture(scope="module", params=WINDOWED)
def folder(request, tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("windowed"), request.param, **WINDOWED[request.param])


def llm(folder, backend="torch", **options):
    model = load_weights(folder, backend=backend)
    return LLM(SimpleNamespace(model=model, tokenizer=None, spec=model.spec), **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_within_the_window_logits_equal_those_of_transformers(folder, backend):
    model = load_weights(folder, backend=backend)
    assert model.spec.max_model_len == WINDOW
    oracle = transformers_logits(folder)(IDS)
    assert row_error(full_logits(model, IDS[:WINDOW]), oracle[:WINDOW]) < ROW_TOLERANCE


def test_beyond_the_window_transformers_computes_something_else(folder, tmp_path):
    """So serving it with full attention would be wrong, and refusing it is right."""
    windowed = transformers_logits(folder)(IDS)
    family = load_weights(folder).spec.model_type
    full = transformers_logits(save_random_model(tmp_path, family))(IDS)
    assert row_error(windowed[:WINDOW], full[:WINDOW]) < ROW_TOLERANCE
    assert row_error(windowed[WINDOW:], full[WINDOW:]) > 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_model_refuses_a_position_beyond_the_window(folder, backend):
    model = load_weights(folder, backend=backend)
    with pytest.raises(ValueError, match=rf"position {WINDOW} is outside .*\(sliding_window={WINDOW}\)"):
        model.forward([1], [WINDOW], GrowingCache(model.spec).attend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cache", ["paged", "contiguous", "none"])
def test_a_longer_prompt_is_refused_and_a_shorter_one_ends_at_the_window(folder, backend, cache):
    engine = llm(folder, backend, cache=cache)
    greedy = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    with pytest.raises(ValueError, match=NAMED):
        engine.generate([IDS[: WINDOW + 1]], greedy)
    output = engine.generate([IDS[:10]], greedy)[0].outputs[0]
    assert (len(output.token_ids), output.finish_reason) == (WINDOW - 10, "length")


def test_max_model_len_cannot_pass_the_window(folder):
    with pytest.raises(ValueError, match=f"max_model_len={WINDOW + 1} is more than the model's {NAMED}"):
        llm(folder, max_model_len=WINDOW + 1)
    engine = llm(folder, max_model_len=WINDOW - 4)
    with pytest.raises(
        ValueError, match=f"max_model_len is {WINDOW - 4}: shorten it"
    ):  # the caller's limit, not the window's
        engine.generate([IDS[:WINDOW]], SamplingParams(max_tokens=1))


@pytest.mark.parametrize("family", ["mistral", "qwen2"])
def test_a_window_as_wide_as_the_context_changes_nothing(family, tmp_path):
    switch = {} if family == "mistral" else {"use_sliding_window": True, "max_window_layers": 0}
    spec = load_weights(save_random_model(tmp_path, family, sliding_window=256, **switch)).spec
    assert (spec.max_model_len, spec.window_note) == (256, "")


def test_a_window_that_is_switched_off_changes_nothing(tmp_path):
    spec = load_weights(save_random_model(tmp_path, "qwen2", sliding_window=WINDOW, use_sliding_window=False)).spec
    assert spec.max_model_len == 256


@pytest.mark.parametrize(
    ("family", "written", "left_out"),
    [
        ("mistral", {"max_position_embeddings": 8192}, "sliding_window"),
        ("qwen2", {"sliding_window": WINDOW, "max_window_layers": 0}, "use_sliding_window"),
        ("qwen3", {"sliding_window": WINDOW, "max_window_layers": 0}, "use_sliding_window"),
    ],
)
def test_a_window_that_is_not_spelt_out_is_that_of_the_class(family, written, left_out, tmp_path):
    from transformers import AutoConfig

    path = save_random_model(tmp_path, family) / "config.json"
    config = json.loads(path.read_text()) | written
    del config[left_out]
    config.pop("layer_types", None)
    path.write_text(json.dumps(config))
    theirs = AutoConfig.from_pretrained(tmp_path)
    assert load_weights(tmp_path).spec.max_model_len == (theirs.sliding_window or theirs.max_position_embeddings)
    del config["model_type"]  # the architecture says as much
    path.write_text(json.dumps(config))
    assert load_weights(tmp_path).spec.max_model_len == (theirs.sliding_window or theirs.max_position_embeddings)
