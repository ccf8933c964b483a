"""Compile a learner's kernel for a GPU that is not there.

Kernels of a notebook are interpreted, and the interpreter takes more than the compiler does. Triton cannot change its mind
within a process: the kernel's source goes to another one, which compiles it as its launch would.

    python -m mini_engine.course.kernel_compile TARGET      a job as JSON on stdin, what came out as JSON on stdout
"""

from __future__ import annotations

import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mini_engine.kernels._mode import VARIABLE, is_interpreted

TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "bool": "i1", "uint8": "u8"}
TYPES |= {f"int{n}": f"i{n}" for n in (8, 16, 32, 64)}
SECONDS = 60  # a compiler that takes longer than this is given up, and says nothing


@dataclass(frozen=True)
class Launch:
    """One call of a kernel: the source that defines it, its name, and what it was given (a tensor is its dtype)."""

    source: str
    kernel: str
    args: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What became of it: registers and so on, and the PTX; or an error and the kernel's line."""

    needs: dict[str, int] | None = None
    ptx: str = ""
    error: str = ""
    line: str = ""


@contextmanager
def launches_kept() -> Iterator[list[Launch]]:
    """Interpreted kernels that are called meanwhile are kept, and not run."""
    from unittest.mock import patch

    from triton.runtime.interpreter import InterpretedFunction

    kept: list[Launch] = []

    def keep(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        kept.append(Launch(source_of(self), self.fn.__name__, tuple(map(_plain, args)), _all_plain(options)))

    with patch.object(InterpretedFunction, "run", keep):
        yield kept


def compiled(launch: Launch, target: str = "sm_90") -> Result | None:
    """Compile a launch. None where this machine cannot: no compiler, no room, or no time."""
    return _compiled(json.dumps(asdict(launch), default=str), target)


@cache
def _compiled(job: str, target: str) -> Result | None:
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", __name__, target]
    try:
        done = subprocess.run(
            command, input=job, capture_output=True, text=True, timeout=SECONDS,
            env={**os.environ, VARIABLE: "0", "PYTHONPATH": paths},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Result(**json.loads(done.stdout)) if done.returncode == 0 else None


def source_of(kernel: Any) -> str:
    """A file that defines this kernel: its text, the kernels that it calls, and the modules and numbers that both use."""
    from triton.runtime.interpreter import InterpretedFunction

    head, body = ["import triton", "import triton.language as tl"], []
    seen = set()

    def visit(function: Any) -> None:
        seen.add(function.fn.__name__)
        for name in _names(function.fn.__code__):
            value = function.fn.__globals__.get(name)
            if isinstance(value, InterpretedFunction) and value.fn.__name__ not in seen:
                visit(value)
            elif isinstance(value, types.ModuleType):
                head.append(f"import {value.__name__} as {name}")
            elif isinstance(value, (bool, int, float, str)):
                head.append(f"{name} = {value!r}")
            elif type(value).__name__ == "constexpr":
                head.append(f"{name} = tl.constexpr({value.value!r})")
        body.append(textwrap.dedent(inspect.getsource(function.fn)))

    visit(kernel)
    return "\n".join([*dict.fromkeys(head), "", "", *body])


def _names(code: types.CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, types.CodeType) for name in _names(each)]
    return [*code.co_names, *inner]


def _plain(value: Any) -> Any:
    return {"tensor": str(value.dtype).removeprefix("torch.")} if hasattr(value, "data_ptr") else value


def _all_plain(options: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in options.items()}


def compiles(call: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A property: what `call(candidate)` launches compiles for an H100. Passes where nothing can be compiled."""

    def run(candidate: Any) -> None:
        from mini_engine.course.expect import expect, fail

        if not is_interpreted():
            return  # it has been compiled: it ran
        with launches_kept() as kept:
            call(candidate)
        expect(bool(kept), "a call launches a kernel", expected="kernel[grid](...)", got="no kernel was launched")
        for launch in kept:
            result = compiled(launch)
            if result is not None and result.error:
                fail(f"{launch.kernel}, compiled for an H100 (sm_90)", in_the_line=result.line, compiler=result.error)

    return run


def main(target: str) -> None:
    """Compile the job on stdin for a target, and print what came of it as JSON."""
    from mini_engine.kernels._mode import import_triton
    from mini_engine.kernels.compile_report import AbsentGPU
    from mini_engine.kernels.machine_code import needs

    job = json.load(sys.stdin)
    triton = import_triton()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.py")
        path.write_text(job["source"])
        kernel = runpy.run_path(str(path))[job["kernel"]]
        given = dict(zip(kernel.arg_names, job["args"])) | job["options"]
        options = {name: value for name, value in given.items() if name not in kernel.arg_names}
        try:
            result = triton.compile(_source(triton, kernel, given), target=AbsentGPU(target).target, options=options)
        except triton.CompilationError as error:
            print(json.dumps(asdict(_refused(error))))
            return
        print(json.dumps(asdict(Result(asdict(needs(result)), result.asm["ptx"]))))


def _source(triton: Any, kernel: Any, given: dict[str, Any]) -> Any:
    """The kernel as a launch specialises it: 1 is a constant, and multiples of 16 and new tensors' addresses are known."""
    signature, constants, aligned = {}, {}, {}
    for i, parameter in enumerate(kernel.params):
        name, value = parameter.name, given.get(parameter.name, parameter.default)
        if parameter.is_constexpr or value is None or value == 1:
            signature[name], constants[(i,)] = "constexpr", value
            continue
        signature[name] = "*" + TYPES[value["tensor"]] if isinstance(value, dict) else _kind(value)
        if isinstance(value, dict) or (isinstance(value, int) and value % 16 == 0):
            aligned[(i,)] = [["tt.divisibility", 16]]
    return triton.compiler.ASTSource(kernel, signature, constants, aligned)


def _kind(value: Any) -> str:
    return (
        "fp32"
        if isinstance(value, float)
        else "i1"
        if isinstance(value, bool)
        else "i32"
        if abs(value) < 2**31
        else "i64"
    )


def _refused(error: Any) -> Result:
    """The innermost of the compiler's errors: what it says, and the line it points to."""
    while error.__cause__ is not None and hasattr(error.__cause__, "node"):
        error = error.__cause__
    words = str(error.__cause__) if error.__cause__ is not None else error.error_message or ""
    inner = re.fullmatch(r"\w+Error\(([\"'])(.*)\1\)", words, re.DOTALL)
    words = inner[2] if inner else words
    lines = (error.src or "").splitlines()
    at = getattr(error.node, "lineno", 0)
    return Result(
        error=words or str(error).splitlines()[-1], line=lines[at - 1].strip() if 0 < at <= len(lines) else ""
    )


if __name__ == "__main__":
    main(sys.argv[1])
