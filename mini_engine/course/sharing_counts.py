"""What sharing saves, counted: by formula for branches of one prompt, and in the film of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mini_engine.arguments import ceil_div, count


class BranchBlocks(NamedTuple):
    """Blocks in all tables of a forked prompt, and the copies that were made on the way."""

    shared: int
    private: int
    copied: int


def branch_blocks(prefix: int, out: int, n: int, block: int) -> BranchBlocks:
    """Blocks of n branches that share a prefix and have stored `out` further tokens each, at least 1.

    Only blocks that the prefix fills stay shared. The others are private, and of these n - 1 began as a copy if the
    prefix ends inside a block.
    """
    prefix, out, n, block = count("prefix", prefix), count("out", out), count("n", n), count("block", block)
    full = prefix // block
    return BranchBlocks(full, n * (ceil_div(prefix + out, block) - full), n - 1 if prefix % block else 0)


class Sharing(NamedTuple):
    """Over all steps of a film: entries in block tables, the blocks behind them, and copies."""

    entries: int
    blocks: int
    copied: int

    @property
    def saved(self) -> float:
        """Share of the blocks that sharing saves. The measure of Kwon et al. 2023, figure 15."""
        return 1 - self.blocks / self.entries


def sharing_in(film: Iterable[Mapping[str, Any]]) -> Sharing:
    """Count `engine.film`: what each step left in the tables."""
    entries = blocks = copied = 0
    for event in film:
        if event["kind"] != "step":
            continue
        tables = [sequence["block_table"] for sequence in event["sequences"]]
        entries += sum(map(len, tables))
        blocks += len({block for table in tables for block in table})
        copied += sum(op["kind"] == "copy" for op in event["cache_ops"])
    return Sharing(entries, blocks, copied)
