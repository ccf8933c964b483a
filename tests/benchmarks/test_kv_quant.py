"""The benchmark of lossy caches: its arithmetic, a small run, and what the stored results must say."""

from __future__ import annotations

import json
import math
import time

import kv_quant
import numpy as np
import pytest
import torch

from mini_engine import ModelSpec, get_model
from mini_engine.backends.kv_formats import FORMATS, bytes_per_token, kv_format
from mini_engine.data_files import data_dir
from mini_engine.kv_quality import SCHEMES, kv_bytes


def test_a_row_compares_token_by_token():
    exact = np.array([1.0, 2.0, 3.0, 6.0])
    row = kv_quant.summary(exact + np.array([0.5, 0.1, 0.1, 0.5]), exact, 64.0, time.process_time())
    assert row == {
        "bytes_per_token": 64, "loss": 3.3, "perplexity": round(math.exp(3.3), 3), "worse_by": 0.3,
        "standard_error": pytest.approx(0.11547, abs=1e-5), "cpu_seconds": pytest.approx(0, abs=0.1),
    }  # fmt: skip


def test_a_quick_run_stores_its_figures(tmp_path, capsys):
    out = tmp_path / "kv.json"
    kv_quant.main(
        ["--models", "tiny-gqa", "tiny-mla", "--schemes", "int2 per token, zero", "--quick", "--output", str(out)]
    )
    stored = json.loads(out.read_text())
    assert stored["length"] == 192
    assert {"command", "date", "machine", "versions"} <= stored.keys()
    result = stored["models"]["tiny-gqa"]
    assert (result["predicted_tokens"], result["facts"]) == (191, 4)
    assert list(result["schemes"]) == ["fp32", "int2 per token, zero"]
    exact, lossy = result["schemes"].values()
    assert (exact["worse_by"], exact["bytes_per_token"]) == (0, 2048)
    assert lossy["worse_by"] == pytest.approx(lossy["loss"] - exact["loss"], abs=2e-5)
    assert lossy["worse_by"] > 2 * lossy["standard_error"] > 0
    assert lossy["found_by_quarter"] == [0, 0, 0, 0]
    latent = stored["models"]["tiny-mla"]
    assert latent["schemes"] == {}
    assert latent["pools"]["int8"]["bytes_per_token"] == 4 * (80 + 4)
    assert f"{lossy['loss']:.4f}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="holds 7 texts of 512 tokens"):
        kv_quant.main(["--models", "tiny-gqa", "--texts", "99", "--output", str(out)])


def test_stored_results_are_of_these_schemes_and_bytes():
    stored = json.loads((kv_quant.RESULTS / "kv_quant.json").read_text())
    assert stored["length"] == kv_quant.LENGTH
    assert list(stored["models"]) == list(kv_quant.MODELS)
    specs = {name: ModelSpec.from_hf_config(data_dir() / "models" / name) for name in ("tiny-gqa", "tiny-mla")}
    specs["smollm2-135m"] = get_model("smollm2-135m")
    for name, result in stored["models"].items():
        assert list(result["schemes"]) == ([] if specs[name].is_mla else list(SCHEMES))
        assert list(result["pools"]) == list(FORMATS)
        for scheme, row in result["schemes"].items():
            assert row["bytes_per_token"] == kv_bytes(specs[name], SCHEMES[scheme], 512) / 512
            assert sum(row["found_by_quarter"]) == row["found"] <= result["facts"]
        for dtype, row in result["pools"].items():
            assert row["bytes_per_token"] == bytes_per_token(specs[name], kv_format(dtype, torch.float32))
        for row in [*result["schemes"].values(), *result["pools"].values()]:
            assert row["perplexity"] == pytest.approx(math.exp(row["loss"]), rel=1e-4)
