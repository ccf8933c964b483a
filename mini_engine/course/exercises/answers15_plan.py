"""Plans for lesson 15: right ones of several kinds, and the wrong ones that people make."""

from __future__ import annotations

from typing import Any


def seven_l40s() -> dict[str, Any]:
    return {"gpu": "l40s", "gpus": 7, "num_blocks": 14_000, "max_num_batched_tokens": 512}


def two_h100() -> dict[str, Any]:
    return {"gpu": "h100-sxm", "gpus": 2, "num_blocks": 29_000, "max_num_batched_tokens": 1024}


def seven_l40s_half_the_blocks() -> dict[str, Any]:
    return {"gpu": "l40s", "gpus": 7, "num_blocks": 7_000, "max_num_batched_tokens": 640}


def changed(**fields: Any) -> Any:
    """A plan like the first, but for some fields."""

    def plan() -> dict[str, Any]:
        return {**seven_l40s(), **fields}

    return plan


def no_budget() -> dict[str, Any]:
    return {"gpu": "l40s", "gpus": 7, "num_blocks": 14_000}
