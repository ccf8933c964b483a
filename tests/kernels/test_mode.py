"""The mode is chosen before Triton is imported; too late, or without Triton, there is an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = "import mini_engine.kernels as kernels; print(kernels.is_interpreted())"


def python(code: str, **environment: str | None) -> tuple[str, str]:
    """stdout and stderr of a new Python; a variable of None is taken away."""
    every = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}
    every = {name: value for name, value in every.items() if value is not None}
    run = subprocess.run([sys.executable, "-c", code], env=every, capture_output=True, text=True, timeout=120)
    return run.stdout.strip(), run.stderr.strip()


def last_line(text: str) -> str:
    return text.splitlines()[-1] if text else ""


def test_importing_the_package_imports_neither_torch_nor_triton():
    code = "import sys, mini_engine.kernels; print([m for m in ('torch', 'triton') if sys.modules.get(m)])"
    assert python(code)[0] == "[]"


def test_without_a_gpu_kernels_are_interpreted_and_the_environment_says_so():
    out, _ = python(INTERPRETER + "; import os; print(os.environ['TRITON_INTERPRET'])", TRITON_INTERPRET=None)
    assert out.split() == ["True", "1"]


@pytest.mark.parametrize(("given", "interpreted"), [("1", "True"), ("0", "False"), ("true", "True"), ("off", "False")])
def test_the_environment_decides(given, interpreted):
    assert python(INTERPRETER, TRITON_INTERPRET=given)[0] == interpreted


def test_a_name_that_is_not_there():
    assert "has no attribute 'paged_decode'" in python("from mini_engine import kernels; kernels.paged_decode")[1]


def test_without_triton_the_error_says_what_still_works():
    hide = "import sys; sys.modules['triton'] = None; "
    error = last_line(python(hide + "from mini_engine.kernels import paged_gqa_decode")[1])
    assert error.startswith("mini_engine.kernels._mode.TritonMissingError")
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (pin,) = [line.split(";")[0] for line in dependencies if line.startswith("triton")]
    assert f"pip install {pin}." in error
    assert "backend='torch'" in error


def test_triton_imported_before_in_the_other_mode():
    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")
    late = "import triton; from mini_engine.kernels import write_kv"
    out, error = python(late, TRITON_INTERPRET=None)
    assert out == ""
    error = last_line(error)
    assert "TritonModeError" in error
    assert "imported for the compiler, and here it must be for the interpreter" in error
    assert "TRITON_INTERPRET=1 before Python starts" in error

    other = "import triton, os; os.environ['TRITON_INTERPRET'] = '0'; from mini_engine.kernels import write_kv"
    assert "for the interpreter, and here it must be for the compiler" in python(other, TRITON_INTERPRET="1")[1]
    assert python(late + "; print('fine')", TRITON_INTERPRET="1") == ("fine", "")


def test_compiled_kernels_refuse_tensors_of_the_cpu():
    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")
    code = (
        "import torch; from mini_engine.kernels import combine; "
        "combine(torch.zeros(2, 1, 1, 16), torch.zeros(2, 1, 1), torch.zeros(1, 1, 16))"
    )
    error = last_line(python(code, TRITON_INTERPRET="0")[1])
    assert "these tensors are on cpu" in error
    assert "TRITON_INTERPRET=1" in error
