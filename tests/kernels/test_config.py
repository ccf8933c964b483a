"""The table of tiles and the rule for splits: pure Python, on any machine."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import mini_engine.kernels
from mini_engine.kernels.config import choose_num_splits, gqa_config, mla_config

FOLDER = Path(mini_engine.kernels.__file__).parent


@pytest.mark.parametrize(
    ("num_programs", "max_context", "splits"),
    [
        (8, 131072, 32), (8, 8192, 32), (8, 8191, 16), (64, 131072, 8), (256, 131072, 2), (264, 131072, 1),
        (1024, 131072, 1), (1, 511, 1), (1, 512, 2), (1, 0, 1), (4, 131072, 32), (32, 131072, 16),
    ],
)  # fmt: skip
def test_splits_for_132_processors(num_programs, max_context, splits):
    assert choose_num_splits(num_programs, max_context, 132) == splits


def test_the_interpreter_splits_no_small_context():
    assert choose_num_splits(2, 10**6, 1) == 1


@pytest.mark.parametrize("arch", ["interpreter", "sm_80", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("head_dim", [32, 80, 128, 256])
@pytest.mark.parametrize("bits", [16, 32])
def test_tiles_are_powers_of_two_that_matrix_instructions_take(arch, head_dim, bits):
    every = [kernel(arch, head_dim, bits, pool) for kernel in (gqa_config, mla_config) for pool in (None, bits, 8)]
    for config in every:
        assert config.block_h >= 16
        for size in (config.block_h, config.block_n, config.num_warps):
            assert size & (size - 1) == 0


def test_what_was_found_to_fit():
    """Of 32-bit numbers, 64 tokens of a wide head would spill on an H100 and 32 not fit an MI300's shared memory."""
    assert gqa_config("sm_90", 128, 16).block_n == 64
    assert gqa_config("sm_90", 256, 16).block_n == 32
    assert (gqa_config("sm_90", 128, 32).block_n, gqa_config("sm_90", 128, 32).num_warps) == (32, 8)
    assert gqa_config("gfx942", 256, 32).block_n == gqa_config("sm_80", 256, 32).block_n == 16
    assert [mla_config(arch, 128, 16).block_h for arch in ("sm_80", "sm_90", "gfx942")] == [16, 32, 16]
    assert mla_config("sm_90", 16, 16).block_h == 16


def test_an_arch_is_named_by_its_numbers_or_by_amd():
    from types import SimpleNamespace

    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")
    from mini_engine.kernels.launch import arch_of

    nvidia = SimpleNamespace(gcnArchName="NVIDIA A100-SXM4-80GB", major=8, minor=0)  # torch's, as it is
    amd = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4)
    assert arch_of(nvidia, is_amd=False) == "sm_80"
    assert arch_of(amd, is_amd=True) == "gfx942"


def test_kernels_import_torch_triton_and_numpy_only():
    allowed = {"torch", "triton", "numpy", "mini_engine", *sys.stdlib_module_names}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
                assert not name.startswith("mini_engine.") or name.startswith("mini_engine.kernels"), path.name


def test_no_public_name_is_a_module_of_its_own():
    """Importing such a module would put it in the place of the function."""
    modules = {path.stem for path in FOLDER.glob("*.py")}
    assert not modules & set(mini_engine.kernels.__all__)
