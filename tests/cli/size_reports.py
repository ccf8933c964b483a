"""What the tests of `mini-engine size` share."""

from __future__ import annotations

import json

TP2 = ("--model", "llama-3-70b", "--gpu", "h100-sxm", "--tp", "2")


def report(run, *options: str) -> dict:
    """The command's JSON."""
    result = run("size", *options, "--json")
    assert result.status == 0, result.err
    return json.loads(result.out)
