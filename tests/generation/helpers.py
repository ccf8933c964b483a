"""What the tests of `LLM` share."""

from __future__ import annotations

from mini_engine import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def tokens(outputs):
    """The token ids of each output's first branch."""
    return [output.outputs[0].token_ids for output in outputs]
