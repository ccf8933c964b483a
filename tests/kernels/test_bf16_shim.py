"""bfloat16 in the interpreter: as torch rounds it, and an error as soon as Triton is not what the replacement is for."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch
from triton.runtime import interpreter

from mini_engine.kernels import bf16_shim, combine, is_interpreted

Builder = interpreter.InterpreterBuilder
pytestmark = pytest.mark.skipif(not is_interpreted(), reason="kernels are compiled here, and need no replacement")


def bits(x: torch.Tensor) -> np.ndarray:
    return x.view(torch.int16).numpy().view(np.uint16)


def test_numbers_are_rounded_as_torch_rounds_them():
    rng = np.random.default_rng(0)
    some = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)  # subnormal, infinite and NaN ones too
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    x = torch.from_numpy(np.concatenate([some, ties, np.float32([0, -0.0, np.inf, -np.inf, 3.4e38])]))
    ours, theirs = bf16_shim.to_bf16(x.numpy()), bits(x.bfloat16())
    numbers = ~x.isnan().numpy()
    assert np.array_equal(ours[numbers], theirs[numbers])
    assert np.isnan(bf16_shim.from_bf16(ours[~numbers])).all()
    assert np.array_equal(bf16_shim.from_bf16(theirs[numbers]), x.bfloat16().float().numpy()[numbers])


def test_it_is_installed_with_the_kernels_and_once():
    assert combine is not None
    assert Builder._bf16_is_mended
    dot = Builder.create_dot
    bf16_shim.install()
    assert Builder.create_dot is dot


@pytest.fixture
def as_before(monkeypatch):
    """The interpreter as Triton made it: what the replacement kept of the old methods."""
    cells = dict(zip(Builder.create_dot.__code__.co_freevars, Builder.create_dot.__closure__))
    cast_cells = dict(zip(Builder.cast_impl.__code__.co_freevars, Builder.cast_impl.__closure__))
    monkeypatch.setattr(Builder, "create_dot", cells["old_dot"].cell_contents)
    monkeypatch.setattr(Builder, "cast_impl", cast_cells["old_cast"].cell_contents)
    monkeypatch.setattr(Builder, "_bf16_is_mended", False)
    return monkeypatch


def test_what_it_mends_is_broken(as_before):
    import triton.language as tl

    assert bf16_shim._probe(Builder, interpreter, tl) != bf16_shim.EXPECTED
    bf16_shim.install()
    assert bf16_shim._probe(Builder, interpreter, tl) == bf16_shim.EXPECTED


def test_a_triton_that_mends_it_itself_is_noticed(as_before):
    bf16_shim.install()
    as_before.setattr(Builder, "_bf16_is_mended", False)
    with pytest.raises(RuntimeError, match=r"Triton \d.*the replacement can go"):
        bf16_shim.install()


def test_a_triton_that_names_it_otherwise_is_noticed(as_before):
    as_before.delattr(Builder, "cast_impl")
    with pytest.raises(RuntimeError, match=r"does not treat bfloat16 as .* expects .AttributeError"):
        bf16_shim.install()


def test_a_replacement_that_no_longer_reaches_the_casts_is_noticed(as_before):
    as_before.setattr(Builder, "create_fp_trunc", lambda self, src, dst_type: interpreter.TensorHandle(
        (src.data.view(np.uint32) >> 16).astype(np.uint16), dst_type.scalar))  # fmt: skip
    dot = Builder.create_dot
    with pytest.raises(RuntimeError, match="instead of"):
        bf16_shim.install()
    assert Builder.create_dot is dot
