"""The GPU benchmark: rehearsed in the interpreter where there is no GPU, every row of it, and with nothing else installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch
from gpu import bench as bench_module
from gpu.bench import Bench
from gpu.correct import gqa
from gpu.tables import markdown
from gpu.worlds import make_world

from mini_engine.kernels import is_interpreted

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu_kernels.py"
ALONE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name in {"safetensors", "gguf", "tokenizers", "jinja2", "tqdm", "transformers", "matplotlib", "IPython"}:
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Nothing())
import runpy
sys.argv = sys.argv[1:]
sys.path.insert(0, str(__import__("pathlib").Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*arguments: str, alone: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *(["-c", ALONE] if alone else []), str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_without_a_gpu_it_says_so(tmp_path):
    found = run("--output", str(tmp_path / "out"))
    assert found.returncode == 2
    assert found.stderr.startswith("No GPU: ")
    assert found.stdout == ""
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsal")
    found = run("--dry-run", "--output", str(folder), alone=True)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    return [json.loads(line) for line in (folder / "gpu_kernels.jsonl").read_text().splitlines()], folder, found


def test_a_rehearsal_runs_every_row_right_and_times_none(rehearsed):
    rows, _, _ = rehearsed
    phases = [row["phase"] for row in rows]
    assert list(dict.fromkeys(phases)) == ["environment", "ceiling", "compile", "correct", "gqa", "mla", "engine"]
    # 4 batches, 4 contexts, 3 groups, and one sequence in one part; 4 batches, 3 contexts, 2 numbers of heads
    assert (phases.count("gqa"), phases.count("mla")) == (4 * 4 * 3 + 4, 4 * 3 * 2)
    assert (phases.count("correct"), phases.count("engine")) == ((7 + 3) * 4 + 3, 1 + 2 * 3)
    assert all(row["right"] for row in rows if row["phase"] in ("correct", "gqa", "mla"))
    assert not any(isinstance(row.get("error"), str) for row in rows)
    assert {row.get("us") for row in rows} == {None}
    assert not {"GB/s", "TFLOPS", "decode tok/s"} & {name for row in rows for name in row}


def test_both_backends_of_a_rehearsal_decode_as_many_tokens(rehearsed):
    decoded = {(row["backend"], row["requests"]): row["decoded"] for row in rehearsed[0] if "backend" in row}
    assert decoded == {(backend, n): 2 * n for backend in ("triton", "torch") for n in (1, 2)}


def test_the_page_has_a_table_for_each_phase(rehearsed):
    rows, folder, found = rehearsed
    page = (folder / "gpu_kernels.md").read_text()
    assert page == markdown(rows, dry=True)
    assert "nothing here was timed" in page
    assert page.count("\n## ") == 7
    assert found.stdout.splitlines()[-1] == f"{len(rows)} rows, 0 wrong or failed: {folder / 'gpu_kernels.md'}"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "rows.jsonl", dry=True, budget=100)


def test_rows_are_in_the_file_at_once(bench, tmp_path):
    bench.row("gqa", B=1)
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == {"phase": "gqa", "B": 1}


def test_what_fails_is_a_row_and_what_does_not_fit_is_left_out(bench):
    def fail(error):
        raise error

    bench.attempt("gqa", {"B": 1}, lambda: fail(ValueError("no\nmore")))
    bench.attempt("gqa", {"B": 2}, lambda: fail(MemoryError("3 Gi numbers")))
    assert bench.rows == [
        {"phase": "gqa", "B": 1, "error": "ValueError: no"},
        {"phase": "gqa", "B": 2, "skipped": "MemoryError: 3 Gi numbers"},
    ]


def test_a_phase_ends_with_its_time_and_says_what_it_left_out(bench, monkeypatch):
    bench.dry = False
    now = iter([0, 1, 2, 99])
    monkeypatch.setattr(bench_module.time, "monotonic", lambda: next(now, 99))
    bench.end = 1000
    assert list(bench.within("mla", ["a", "b", "c", "d"], seconds=10)) == ["a", "b"]
    assert bench.rows == [{"phase": "mla", "skipped": "2 of 4: out of time"}]


def test_rates_are_shares_of_the_measured_ceilings(bench):
    bench.copy_rate, bench.matmul_rate = 4e12, 8e14
    assert bench.rates(1e-3, 2 * 10**9, 10**11) == {
        "us": 1000.0, "GB/s": 2000.0, "% of copy": 50.0, "TFLOPS": 100.0, "% of matmul": 12.5,
    }  # fmt: skip
    assert bench.rates(None, 1, 1) == {"us": None}


def test_time_is_the_median_of_calls_with_cold_caches(bench, monkeypatch):
    calls: list[str] = []

    class Event:
        number = 0

        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            calls.append("record")

        def elapsed_time(self, stop):
            Event.number += 1
            return 1000.0 if Event.number == 1 else 2.0  # milliseconds; the first is an accident

    class Flush:
        def zero_(self):
            calls.append("flush")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(bench_module, "SECONDS_A_ROW", 0)
    bench._flush = Flush()
    assert bench.seconds(lambda: calls.append("run")) == 0.002
    assert calls == ["run", *["flush", "record", "run", "record"] * bench_module.FEWEST]


@pytest.mark.skipif(not is_interpreted(), reason="on the CPU")
def test_wrong_results_are_seen():
    world = make_world((0, 3, 20), torch.device("cpu"), P=4, K=2, G=2, D=16, dtype=torch.float32)
    out = gqa(world)
    assert world.error(out) < 1e-6
    for row, value in ((0, 1e-3), (1, float("nan")), (2, 1.0)):
        wrong = out.clone()
        wrong[row, 3, 5] = value
        assert world.error(wrong) > 1e-4
        assert world.error(wrong, [x for x in range(3) if x != row]) < 1e-6


def test_kernels_of_the_sweeps_compile_for_a_gpu_that_is_not_there():
    code = "import json; from gpu.compiled import compile_call; print(json.dumps(compile_call('sm_90', 'gqa G=4 in 2', 2)))"
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": f"{SCRIPT.parent}:{ROOT}"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    rows = json.loads(found.stdout)
    assert [row["kernel"] for row in rows] == ["gqa_decode_kernel", "combine_kernel"]
    assert all(row["spills"] == 0 < row["registers"] for row in rows)


@pytest.mark.skipif(not is_interpreted(), reason="on the CPU")
def test_flashinfer_is_given_the_same_cache(monkeypatch):
    """A stand-in follows what it is told as FlashInfer's documentation has it: pages, where a row's begin, how full the last is."""
    from gpu import sweeps

    B, S, P, K, G, D = 2, 21, 8, 2, 3, 16
    world = make_world((S, S), torch.device("cpu"), P=P, K=K, G=G, D=D, dtype=torch.bfloat16)
    world.tables = world.tables[:, : -(-S // P)].contiguous()
    outs = []

    class Wrapper:
        def __init__(self, workspace, layout, use_tensor_cores):
            assert layout == "NHD"
            assert use_tensor_cores is False

        def plan(
            self,
            indptr,
            indices,
            last_page_len,
            num_qo_heads,
            num_kv_heads,
            head_dim,
            page_size,
            *,
            q_data_type,
            kv_data_type,
        ):
            assert (num_qo_heads, num_kv_heads, head_dim, page_size) == (K * G, K, D, P)
            self.given = [indices[indptr[row] : indptr[row + 1]] for row in range(B)], last_page_len

        def run(self, q, pools):
            for row, (pages, last) in enumerate(zip(*self.given)):
                k, v = (pool[pages.long()].flatten(0, 1)[: (len(pages) - 1) * P + last] for pool in pools)
                expected = torch.nn.functional.scaled_dot_product_attention(
                    q[row][:, None], k.transpose(0, 1), v.transpose(0, 1), enable_gqa=True
                )
                outs.append(expected[:, 0])

    monkeypatch.setitem(sys.modules, "flashinfer", type(sys)("flashinfer"))
    sys.modules["flashinfer"].BatchDecodeWithPagedKVCacheWrapper = Wrapper
    assert sweeps.flashinfer(Bench(Path(os.devnull), dry=True, budget=1), world, S) is None
    assert world.error(torch.stack(outs)) < 5e-3
