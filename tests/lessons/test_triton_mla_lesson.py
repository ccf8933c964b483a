"""What is particular to lesson 11: the learner's kernel at work, its oracles by hand, pictures that count, and no Triton."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")
from mini_engine import get_gpu
from mini_engine.course.check import run
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import all_of, find
from mini_engine.course.exercises import answers11_heads as heads_module
from mini_engine.course.exercises.answers11_combine import combine
from mini_engine.course.exercises.answers11_heads import mla_decode
from mini_engine.course.exercises.answers11_mla import latent_decode
from mini_engine.course.exercises.answers11_parts import attend_parts
from mini_engine.course.latent_cases import Latents, bytes_of_the_pool, finds_far_latents
from mini_engine.course.panels import p11_triton_mla as pictures
from mini_engine.course.planted import planted
from mini_engine.kernels import WildAccessError, paged_mla_decode
from mini_engine.kernels.config import choose_num_splits
from mini_engine.roofline import ridge_point
from tests.kernels.checks import needs_interpreter
from tests.lessons.lesson_run import ROOT, lesson
from tests.lessons.triton_lesson import PARAMS, assert_same_text, counted, run_without_triton

PREDICTIONS = {p.id: p for p in all_of(Prediction, "11")}


def test_the_learners_kernel_is_the_one_that_runs_and_no_token_is_a_near_tie(monkeypatch):
    calls = Counter()
    monkeypatch.setattr(heads_module, "combine", counted(combine, calls))
    assert_same_text("tiny-mla", decode=counted(mla_decode, calls))
    assert calls == {"mla_decode": 4 * (PARAMS.max_tokens - 1), "combine": 4 * (PARAMS.max_tokens - 1)}


def test_the_oracle_of_latents_by_hand():
    """Two tokens in float64, one head, and a context of none."""
    case = Latents((2, 0), heads=1, latent=2, rope=1)
    q_latent, q_rope, pool, tables, _ = (x.double().cpu().numpy() for x in case.tensors())
    rows = [pool[int(tables[0, 0]), slot] for slot in range(2)]
    scores = [case.scale * (q_latent[0, 0] @ row[:2] + q_rope[0, 0, 0] * row[2]) for row in rows]
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(case.expected()[0, 0], weights @ np.array(rows)[:, :2], rtol=1e-12)
    assert (case.expected()[1] == 0).all()


def test_rows_of_the_pool_do_not_touch_and_the_rest_is_poison():
    q_latent, q_rope, pool, tables, _ = Latents((5,), apart=True).tensors()
    assert pool.stride(1) > pool.shape[2]
    assert pool.stride(0) > pool.shape[1] * pool.stride(1)
    assert q_latent.stride(0) != q_rope.stride(0)
    assert q_latent.stride(1) != q_rope.stride(1)
    assert int((~pool[..., 0].isnan()).sum()) == 5
    assert int((tables == 2**31 - 1).sum()) == 2


@pytest.mark.parametrize("num_heads", [1, 16, 17, 40])
def test_the_learners_kernel_and_the_engines_agree_on_unlike_shapes(num_heads):
    case = Latents((0, 9, 131), heads=num_heads, latent=24, rope=6, page=8)
    for num_splits in (1, 3):
        mine = mla_decode(*case.tensors(), case.scale, num_splits=num_splits)
        theirs = paged_mla_decode(*case.tensors(), case.scale, num_splits=num_splits)
        assert (mine - theirs).abs().max() < 1e-5


def test_a_far_latent_cannot_be_found_in_32_bits():
    finds_far_latents(latent_decode)
    with pytest.raises(WildAccessError, match="bytes before its first"):
        finds_far_latents(planted(latent_decode, ("mask=live, other=0).to(tl.int64)", "mask=live, other=0)")))


@needs_interpreter
def test_each_tile_of_heads_asks_for_each_latent_once_whatever_the_parts():
    for num_heads, tiles in ((1, 1), (16, 1), (17, 2), (33, 3)):
        case = Latents((70, 3), heads=num_heads)
        for num_splits in (1, 4):
            assert bytes_of_the_pool(mla_decode, case, num_splits=num_splits) == tiles * 73 * 20 * 4


def test_parts_and_combine_equal_one_softmax_however_large_the_scores():
    rng = np.random.default_rng(3)
    q, k, v = (torch.from_numpy(rng.normal(size=s).astype(np.float32)) for s in ((8,), (45, 8), (45, 8)))
    for gain in (1.0, 100.0):
        want = torch.softmax(gain * (k.double() @ q.double()), 0) @ v.double()
        for tokens, parts in ((45, 1), (16, 3), (7, 9)):
            out, lse = attend_parts(gain * q, k, v, 1.0, tokens, parts)
            assert (combine(out[:, None, None], lse[:, None, None])[0, 0] - want).abs().max() < 1e-4


@needs_interpreter
def test_a_mask_from_one_float_is_explained():
    spoiled = planted(attend_parts, ("out / some, mask=d < D", "out / some, mask=(d < D) & (total > 0.0)"))
    outcome = list(run(find(Exercise, "11.partial"), spoiled))[-1]
    assert "put what depends on the float in an `if`" in outcome.detail


@pytest.mark.parametrize("exercise_id", ["11.mla", "11.heads"])
def test_an_answer_that_writes_into_the_pool_is_refused(exercise_id):
    def spoils(q_latent, q_rope, latent_pool, block_tables, context_lens, scale, *, num_splits=1):
        out = mla_decode(q_latent, q_rope, latent_pool, block_tables, context_lens, scale, num_splits=num_splits)
        latent_pool[0] = 0.0
        return out

    outcome = list(run(find(Exercise, exercise_id), spoils))[-1]
    assert outcome.status == "no"
    assert "inputs as they were" in outcome.detail


def test_the_panel_of_programs_counts_what_it_draws():
    every = pictures.tables()
    assert len({block for table in every for block in table}) == sum(map(len, every))
    for num_splits in range(1, 6):
        for sequence, length in enumerate(pictures.LENGTHS):
            sizes = []
            for split in range(num_splits):
                words = pictures.programs(Figure(), sequence, 1, split, num_splits)
                own = "nothing" not in words
                sizes.append(int(words.split(": ")[1].split(" B")[0].replace(",", "")) if own else 0)
                assert f"All {4 * num_splits} programs load 89,600 B" in words
            assert sum(sizes) == length * 20 * 4


@pytest.mark.parametrize(
    ("sequences", "context", "num_splits"), [(1, 1024, 1), (3, 4096, 16), (64, 131072, 128), (1, 1024, 128)]
)
def test_the_panel_of_parts_counts_processors(sequences, context, num_splits):
    tokens = pictures.share(context, num_splits, 64)
    started = sequences * len(range(0, context, tokens))
    words = pictures.splits(Figure(), sequences, context, num_splits)
    assert f": {min(132, started)} of 132 processors" in words
    assert f"reads {math.ceil(started / 132) * tokens:,} tokens" in words


@pytest.mark.parametrize(
    ("heads", "queries", "gpus", "gpu", "bound"),
    [
        (128, 1, 1, "h100-sxm", "memory"),
        (128, 2, 1, "h100-sxm", "compute"),
        (128, 1, 1, "h200-sxm", "compute"),
        (8, 4, 8, "h100-sxm", "memory"),
    ],
)
def test_the_panel_of_heads_names_the_bound(heads, queries, gpus, gpu, bound):
    assert f": {bound} bound, and it takes" in pictures.heads(Figure(), heads, queries, gpus, gpu)


def test_the_diagrams_are_sound():
    for draw in (pictures.parts_and_combine, pictures.one_row):
        ET.fromstring(draw()[0])


def test_predictions_by_counting():
    assert PREDICTIONS["11.idle"].answer == sum(processor >= 1 for processor in range(132))
    assert PREDICTIONS["11.weight"].answer == pytest.approx(np.exp2(3) / (np.exp2(3) + np.exp2(5)))
    assert PREDICTIONS["11.parts_bytes"].answer == np.zeros((32, 16, 512), np.float32).nbytes
    assert PREDICTIONS["11.twice"].answer == pytest.approx(Fraction(17, 9))
    assert PREDICTIONS["11.rereads"].answer == len(range(0, 128, 32))
    ridge = ridge_point(get_gpu("h100-sxm").bf16_flops, get_gpu("h100-sxm").memory_bandwidth)
    enough = [s_q for s_q in range(1, 9) if Fraction(17, 9) * 64 * s_q >= ridge]
    assert PREDICTIONS["11.bound"].answer == enough[0]
    assert PREDICTIONS["11.gpus"].answer == pytest.approx(2176 / 9 / 8)


def test_what_the_lesson_says_of_the_engines_rule():
    """Twice as many programs as processors, rounded up to a power of 2, 256 tokens a part, 32 parts."""
    for programs, context in ((1, 10**6), (1, 1024), (1, 300), (32, 8192), (264, 8192), (8, 10**6)):
        splits = choose_num_splits(programs, context, 132)
        assert splits <= 32
        assert splits & (splits - 1) == 0
        assert splits == 1 or context / splits >= 256
        enough = programs * splits >= 264 or splits == 32 or context < 2 * splits * 256
        assert enough


def test_cells_that_need_triton_say_so_and_only_those():
    words = (
        "triton.jit",
        "_kernel[",
        "mla_decode(",
        "mla_decode,",
        "latent_decode(",
        "attend_parts(",
        "combine(",
        "compile_report",
        "check(",
        "LLM(",
    )
    for cell in lesson("11").cells:
        if cell.kind == "code":
            first = cell.text.splitlines()[0]
            if "import" not in first and "predict(" not in first and "heads_at_ridge" not in cell.text:
                needs = any(word in cell.text for word in words) and "parts_and_combine" not in cell.text
                assert (first == "# needs Triton") == needs, cell.text


def test_without_triton_the_lesson_says_so_and_runs_to_its_end(tmp_path):
    assert "[ok] 11.intensity" in run_without_triton("11", ["11.intensity"], tmp_path)


def test_right_kernels_compile_for_a_gpu():
    """The interpreter takes more than the compiler does. In the small model's shape, for an H100 that is not there."""
    script = """
import torch
from mini_engine.kernels._mode import import_triton
triton = import_triton()
from mini_engine.course.exercises import answers11_heads, answers11_mla, answers11_parts
from mini_engine.kernels.compile_report import AbsentGPU
from mini_engine.kernels.machine_code import needs

class Compiled:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *args, **options: print(needs(self.kernel.warmup(*args, grid=grid, **options)).spills)

for module, name in (answers11_parts, "part_kernel"), (answers11_mla, "latent_kernel"), (answers11_heads, "split_kernel"):
    setattr(module, name, Compiled(getattr(module, name)))
triton.runtime.driver.set_active(AbsentGPU("sm_90"))

def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")

answers11_parts.attend_parts(meta(32), meta(300, 32), meta(300, 32), 1.0, 16, 19)
given = meta(2, 8, 64), meta(2, 8, 16), meta(9, 4, 80), meta(2, 5, dtype=torch.int32), meta(2, dtype=torch.int32), 0.3
answers11_mla.latent_decode(*given)
answers11_heads.mla_decode(*given)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.split() == ["0", "0", "0"], done.stdout[-2000:] + done.stderr[-2000:]
