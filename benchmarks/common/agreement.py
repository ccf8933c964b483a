"""Whether two engines wrote the same, and where they did not, how close the call was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.oracle import TIE, GrowingCache


def compare(
    model: Any, requests: Sequence[dict], ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """How many continuations are identical, and of each other one the first position that differs.

    `gap` is the distance, at that position, of the logits of the two tokens chosen, computed from the text agreed on so
    far over a plain cache. A gap below TIE is a tie: rounding decides, and either token is right.
    """
    differing = []
    for number, (request, a, b) in enumerate(zip(requests, ours, theirs)):
        assert len(a) == len(b) == request["out"], f"request {number}: {len(a)} and {len(b)} tokens of {request['out']}"
        if a != b:
            at = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
            ids = [*request["prompt"], *a[:at]]
            row = model.forward(ids, range(len(ids)), GrowingCache(model.spec).attend, [len(ids) - 1])
            logits = np.asarray(row)[0]
            differing.append({"request": number, "position": at, "gap": float(abs(logits[a[at]] - logits[b[at]]))})
    return {
        "identical": len(requests) - len(differing),
        "ties": sum(each["gap"] < TIE for each in differing),
        "differing": differing,
    }
