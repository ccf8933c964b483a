"""Text that a lesson stores must come out the same everywhere: no greedy token in it may be a near-tie. And it counts in English."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.course.exercises.e01_attention import CAUSAL_ATTENTION
from mini_engine.course.exercises.e01_check_attention import WRONG
from mini_engine.models import load_model

ROOT = Path(__file__).resolve().parents[2]
LADY, EMMA = "The young lady", "Emma was"
STORED = {
    "00_start_here.py": [(EMMA, 64)],
    "01_numpy_kv_cache.py": [(LADY, 16), (EMMA, 40)],
    "07_block_tables.py": [(LADY, 15), (EMMA, 15)],
}


THINGS = (
    "tokens|blocks|slots|steps|requests|sequences|parts|branches|answers|heads|layers|copies|programs|processors|lanes"
)
THINGS += "|tiles|chunks|pages|times|texts|prompts|users|queries|rows|keys|passes|evictions|preemptions"
ONE_OF_MANY = re.compile(rf"(?<![\d.,])(?<![+-] )\b1 (?:[A-Za-z/]+ )?(?:{THINGS})\b")  # "1 blocks", not "t + 1 blocks"


@pytest.mark.parametrize("path", sorted((ROOT / "lessons").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_output_says_one_blocks(path):
    outputs = [o for cell in json.loads(path.read_text("utf-8"))["cells"] for o in cell.get("outputs", [])]
    texts = ["".join(o.get("text", [])) + "".join(o.get("data", {}).get("text/plain", [])) for o in outputs]
    assert [found for text in texts for found in ONE_OF_MANY.findall(text)] == []
    assert ONE_OF_MANY.search("  1 sequences: 3 programs")
    assert ONE_OF_MANY.search("1 more tokens")


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny-gqa", backend="numpy")


def smallest_margin(tiny, prompt, max_tokens, attention=None):
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=2)
    output = LLM(tiny, attention=attention).generate([prompt], params, progress=False)[0].outputs[0]
    assert len(output.token_ids) == max_tokens
    return min(first - second for first, second in (sorted(top.values(), reverse=True)[:2] for top in output.logprobs))


@pytest.mark.parametrize(("source", "prompt", "tokens"), [(s, *run) for s, runs in STORED.items() for run in runs])
def test_stored_text_has_no_near_tie(tiny, source, prompt, tokens):
    text = (ROOT / "solutions" / source).read_text(encoding="utf-8")
    assert f'"{prompt}"' in text
    assert f"max_tokens={tokens}" in text or f"range({tokens})" in text
    assert smallest_margin(tiny, prompt, tokens) > 1e-2


@pytest.mark.parametrize("name", WRONG)
def test_the_text_of_each_bug_has_no_near_tie(tiny, name):
    assert smallest_margin(tiny, LADY, 14, WRONG[name]) > 1e-2


def test_reading_text_does_not_find_every_bug(tiny):
    """What lesson 01 says about its table: some bugs write exactly the right words."""
    params = SamplingParams(temperature=0, max_tokens=14, ignore_eos=True)
    texts = {
        name: LLM(tiny, attention=f).generate([LADY], params, progress=False)[0].outputs[0].token_ids
        for name, f in {"right": CAUSAL_ATTENTION.reference, **WRONG}.items()
    }
    assert sum(tokens == texts["right"] for tokens in texts.values()) >= 2
