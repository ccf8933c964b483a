"""What lessons 10 and 11 are both asked: does the engine write the same text with the learner's kernels, and what happens without Triton?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mini_engine import LLM, SamplingParams
from tests.lessons.lesson_run import ROOT, lesson

PROMPTS = ["The young lady", "Emma was"]
PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=2)


def counted(function: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    """The same function, with a note of every call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[function.__name__] += 1
        return function(*args, **kwargs)

    return call


def assert_same_text(model: str, num_blocks: int = 24, **kernels: Callable[..., Any]) -> None:
    """The tokens of the torch backend, none of them a near tie that would hide a small error."""
    llm = LLM(model, backend="triton", block_size=4, num_blocks=num_blocks, **kernels)
    outputs = [each.outputs[0] for each in llm.generate(PROMPTS, PARAMS, progress=False)]
    torch_llm = LLM(model, block_size=4, num_blocks=num_blocks)
    assert [output.token_ids for output in outputs] == [
        each.outputs[0].token_ids for each in torch_llm.generate(PROMPTS, PARAMS, progress=False)
    ]
    for output in outputs:
        for top in output.logprobs:
            first, second = sorted(top.values(), reverse=True)[:2]
            assert first - second > 1e-2


def run_without_triton(number: str, known_exercises: list[str], folder: Path) -> str:
    """What a lesson prints where Triton cannot be imported: its cells, as IPython runs them, in a process of their own."""
    cells = [cell.text for cell in lesson(number).cells if cell.kind == "code"]
    script = f"""
import sys
sys.modules["triton"] = None
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for text in {cells!r}:
    result = shell.run_cell(text, store_history=False)
    result.raise_error()
from mini_engine.course.exercises import all_of
from mini_engine.course.exercise import Exercise
assert [each.id for each in all_of(Exercise, {number!r})] == {known_exercises!r}
assert all_of(Exercise, "09")
print("reached the end")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, "IPYTHONDIR": str(folder), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Triton is missing: the kernels need Triton" in done.stdout
    assert done.stdout.count("passed over: Triton is missing") == sum(c.startswith("# needs Triton") for c in cells)
    assert done.stdout.rstrip().endswith("reached the end")
    return done.stdout
