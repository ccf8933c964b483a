"""What is particular to lesson 10: the learner's kernels at work, checks that look where a GPU would not, and no Triton."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")
from mini_engine.course import kernel_cases, kernel_compile, kernel_watch
from mini_engine.course.check import check, run
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import all_of, find
from mini_engine.course.exercises.answers10_gqa import gqa_decode
from mini_engine.course.exercises.answers10_write import write_kv
from mini_engine.course.kernel_cases import Cache
from mini_engine.course.kernel_watch import OffLimits, StoredTwiceError, UnneededReadError, watched
from mini_engine.course.own_kernels import start_kernels, without_kernels
from mini_engine.course.panels import p10_triton_gqa as pictures
from mini_engine.course.planted import planted
from mini_engine.kernels import WildAccessError, tl, triton
from tests.lessons.lesson_run import lesson
from tests.lessons.triton_lesson import PARAMS, assert_same_text, counted, run_without_triton

PREDICTIONS = {p.id: p for p in all_of(Prediction, "10")}


def test_a_right_kernel_is_not_warned_of(recwarn):
    """An empty part divides 0 by 0. Without `start_kernels` the interpreter's NumPy would say so, with a path of its own."""

    @triton.jit
    def empty_part(out_ptr):
        total = tl.zeros([4], tl.float32)
        tl.store(out_ptr + tl.arange(0, 4), tl.log2(total) + total / total)

    for quiet in (False, True):
        if quiet:
            start_kernels()
        recwarn.clear()
        empty_part[(1,)](torch.empty(4))
        assert bool(recwarn) != quiet


def test_the_learners_kernels_are_the_ones_that_run_and_no_token_is_a_near_tie():
    calls = Counter()
    assert_same_text("tiny-gqa", decode=counted(gqa_decode, calls), write=counted(write_kv, calls))
    assert calls == {"gqa_decode": 4 * (PARAMS.max_tokens - 1), "write_kv": 4 * PARAMS.max_tokens}


@triton.jit
def _stub_kernel(x_ptr, out_ptr):
    raise NotImplementedError


def _stub(x, lengths):
    out = torch.zeros(len(x))
    _stub_kernel[(1,)](x, out)
    return out, out


def test_a_stub_inside_a_kernel_is_not_done_yet(capsys):
    check("10.rows", _stub)
    assert capsys.readouterr().out.startswith("[todo] 10.rows")


def test_a_stub_that_does_not_compile_is_not_done_yet(monkeypatch, capsys):
    def refused(x, lengths):
        raise triton.CompilationError(
            "def f():\n    raise NotImplementedError", ast.parse("a\nb").body[1], "unsupported"
        )

    monkeypatch.setattr(kernel_watch, "is_interpreted", lambda: False)
    check("10.rows", refused)
    assert capsys.readouterr().out.startswith("[todo] 10.rows")


@triton.jit
def _no_other_kernel(x_ptr, out_ptr, n):
    at = tl.arange(0, 8)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n))


@triton.jit
def _dot_kernel(x_ptr, out_ptr, SIDE: tl.constexpr):
    at = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.dot(x, x))


def test_masked_lanes_without_other_hold_anything_under_watch_and_zero_without():
    out = torch.zeros(8)
    _no_other_kernel[(1,)](torch.ones(8), out, 3)
    assert out.tolist() == [1] * 3 + [0] * 5
    with watched():
        _no_other_kernel[(1,)](torch.ones(8), out, 3)
    assert out[:3].tolist() == [1] * 3
    assert all(np.isnan(x) or abs(x) > 1e30 for x in out[3:].tolist())


@pytest.mark.parametrize(("side", "refused"), [(8, True), (16, False)])
def test_small_products_are_refused_under_watch(side, refused):
    x = torch.ones(side, side)
    _dot_kernel[(1,)](x, torch.empty(side, side), SIDE=side)
    if refused:
        with pytest.raises(ValueError, match="16 or more"), watched():
            _dot_kernel[(1,)](x, torch.empty(side, side), SIDE=side)
    else:
        with watched():
            _dot_kernel[(1,)](x, torch.empty(side, side), SIDE=side)


def test_a_wild_address_is_an_error_that_names_the_tensor():
    with pytest.raises(WildAccessError, match=r"x_ptr|out_ptr"), watched():
        _no_other_kernel[(1,)](torch.ones(8), torch.zeros(8)[4:].clone(), 3)


@triton.jit
def _all_store_kernel(out_ptr, STEP: tl.constexpr):
    i = tl.program_id(0)
    tl.store(out_ptr + i * STEP + tl.arange(0, 4), i)


def test_two_programs_that_store_in_one_place_are_refused_whatever_their_order():
    out = torch.zeros(16)
    for backwards in (False, True):
        with watched(backwards=backwards):
            _all_store_kernel[(4,)](out, STEP=4)
        assert out.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
        with pytest.raises(StoredTwiceError, match="same place of out_ptr"), watched(backwards=backwards):
            _all_store_kernel[(4,)](out, STEP=3)


@triton.jit
def _last_kernel(out_ptr):
    tl.store(out_ptr + tl.program_id(0), tl.load(out_ptr) + 1.0)


def test_programs_run_backwards_on_demand():
    for backwards, want in ((False, [1, 2, 2]), (True, [1, 1, 1])):
        out = torch.zeros(3)
        with watched(backwards=backwards):
            _last_kernel[(3,)](out)
        assert out.tolist() == want


def test_a_load_that_is_thrown_away_is_refused_where_it_is_off_limits():
    x, out = torch.ones(8), torch.zeros(8)
    off = OffLimits(x, np.arange(8) >= 3, "for the test")
    with watched([off]):
        _no_other_kernel[(1,)](x, out, 3)
    with pytest.raises(UnneededReadError, match=r"x_ptr\[3\], for the test"), watched([off]):
        _no_other_kernel[(1,)](x, out, 4)


@triton.jit
def _and_kernel(x_ptr, out_ptr):
    at = tl.arange(0, 8)
    tl.store(out_ptr + at, tl.load(x_ptr + at), mask=(at < 4) and (at > 1))


@triton.jit
def _index_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, x_ptr[0])


@pytest.mark.parametrize(("kernel", "words"), [(_and_kernel, "& and |"), (_index_kernel, "tl.load")])
def test_beginners_python_is_named(kernel, words):
    with pytest.raises(TypeError, match=words), watched():
        kernel[(1,)](torch.ones(8), torch.zeros(8))


def test_memory_that_nobody_wrote_is_no_zero_under_watch():
    with watched():
        assert torch.empty(100).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@triton.jit
def _half(x):
    return x * FACTOR


FACTOR = tl.constexpr(0.5)


@triton.jit
def _calls_another_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, _half(tl.load(x_ptr + at, mask=at < n, other=0.0)), mask=at < n)


def test_a_kernel_with_a_helper_is_compiled_for_a_gpu_that_is_not_there():
    x = torch.ones(1024)
    with kernel_compile.launches_kept() as launches:
        _calls_another_kernel[(1,)](x, x, 1024, BLOCK=1024)
    assert (x == 1).all(), "kept, and not run"
    result = kernel_compile.compiled(launches[0])
    assert result.needs["spills"] == 0
    assert result.needs["wide_loads"] > 0
    assert "_calls_another_kernel" in result.ptx


def test_where_nothing_can_be_compiled_the_property_passes(monkeypatch):
    bad = planted(gqa_decode, ("tl.dot(q, tl.trans(k)", "tl.dot(q * scale, tl.trans(k)"))
    with pytest.raises(AssertionError, match="same dtype"):
        kernel_cases.compiles_decode(bad)
    monkeypatch.setattr(kernel_compile, "compiled", lambda launch: None)
    kernel_cases.compiles_decode(bad)


def test_a_far_block_cannot_be_found_in_32_bits():
    far = kernel_cases.finds_far_blocks((2, 2))
    far(gqa_decode)
    with pytest.raises(WildAccessError, match=r"through [kv]_ptr, [0-9,]+ bytes before its first"):
        far(planted(gqa_decode, ("mask=live, other=0).to(tl.int64)", "mask=live, other=0)")))


def test_what_is_planted_must_stand_there_once():
    with pytest.raises(ValueError, match="stands 0 times"):
        planted(gqa_decode, ("no such text", ""))


def test_the_oracle_by_hand():
    """Two tokens in float64, and a context of none."""
    cache = Cache((2, 0), (1, 1), size=2)
    q, k, v = cache.arrays()
    weights = np.exp([float(q[0, 0].astype(float) @ k[0][i, 0].astype(float)) * cache.scale for i in range(2)])
    want = weights @ v[0][:, 0].astype(float) / weights.sum()
    np.testing.assert_allclose(cache.expected()[0, 0], want, rtol=1e-12)
    assert (cache.expected()[1] == 0).all()


def test_a_cache_is_poisoned_wherever_nobody_may_look():
    cache = Cache((5, 9), (2, 1), window=3)
    _, k_pool, v_pool, tables, lengths = cache.tensors()
    assert (~k_pool[..., 0].isnan()).sum() == (~v_pool[..., 0].isnan()).sum() == 2 * 3
    assert (tables == kernel_cases.NOWHERE).sum(1).tolist() == [3, 2]
    assert lengths.tolist() == [5, 9]


@pytest.mark.parametrize("exercise_id", ["10.paged", "10.gqa"])
def test_an_answer_that_writes_into_the_pool_is_refused(exercise_id):
    def spoils(q, k_pool, v_pool, block_tables, context_lens, scale, *, window=None):
        out = gqa_decode(q, k_pool, v_pool, block_tables, context_lens, scale, window=window)
        k_pool[0] = 0.0
        return out

    outcome = list(run(find(Exercise, exercise_id), spoils))[-1]
    assert outcome.status == "no"
    assert "inputs as they were" in outcome.detail


@pytest.mark.parametrize("block_n", [4, 8, 16, 32])
def test_the_panel_counts_what_it_draws(block_n):
    tables = pictures.tables()
    assert len({block for table in tables for block in table}) == sum(map(len, tables))
    for sequence, length in enumerate(pictures.LENGTHS):
        words = pictures.programs(Figure(), sequence, 1, block_n)
        assert f"{length} tokens in {-(-length // block_n)} tile" in words
        assert f"{-length % block_n} lanes are masked off" in words
        assert f"It loads {2 * length * 32 * 4:,} B" in words
    assert "all 6 programs load 20,480 B" in words


def test_the_diagram_is_sound():
    ET.fromstring(pictures.two_ways()[0])


def test_predictions_by_counting():
    assert PREDICTIONS["10.masked"].answer == sum(at >= 70 for at in range(128))
    assert PREDICTIONS["10.overflow"].answer == next(b for b in range(2**17 - 2, 2**18) if b * 16 * 8 * 128 > 2**31 - 1)
    assert PREDICTIONS["10.again"].answer == sum(h // 4 == 3 for h in range(32))


def test_cells_that_need_triton_say_so_and_only_those():
    for cell in lesson("10").cells:
        if cell.kind == "code":
            uses = any(
                word in cell.text for word in ("triton.jit", "_kernel[", "gqa_decode)", "paged_decode)", "check(")
            )
            first = cell.text.splitlines()[0]
            if "import" not in first and "predict(" not in first:
                assert (first == "# needs Triton") == (uses or "compiled(" in cell.text or "LLM(" in cell.text), (
                    cell.text
                )


def test_a_cell_that_needs_triton_is_passed_over():
    assert without_kernels(["# needs Triton\n", "x = 1\n"]) == ["print('  passed over: Triton is missing')\n"]
    assert without_kernels(["x = 1\n"]) == ["x = 1\n"]


def test_without_triton_the_lesson_says_so_and_runs_to_its_end(tmp_path):
    run_without_triton("10", [], tmp_path)
