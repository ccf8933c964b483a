"""What sharing saves, counted: by formula for branches of one prompt, and in the film of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mini_engine.arguments import count
from mini_engine.geometry.sharing import branch_table


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
    prefix, out, n = count("prefix", prefix), count("out", out), count("n", n)
    total, full = branch_table(prefix, out, block)
    return BranchBlocks(full, n * (total - full), n - 1 if prefix % block else 0)


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
    """Count `engine.film`: what each step left in the tables.

    Only tables that hold an answer's tokens count: after the prompt's own step there are n tables for n samples, but
    one for a beam that has not branched yet. Copies count in every step.
    """
    entries = blocks = copied = 0
    for event in film:
        if event["kind"] != "step":
            continue
        tables = [
            one["block_table"] for one in event["sequences"] if one["num_computed_tokens"] > one["num_prompt_tokens"]
        ]
        entries += sum(map(len, tables))
        blocks += len({block for table in tables for block in table})
        copied += sum(op["kind"] == "copy" for op in event["cache_ops"])
    return Sharing(entries, blocks, copied)


def sharing_of_samples(lengths: Iterable[tuple[int, int]], n: int, block: int) -> Sharing:
    """What `sharing_in` counts, by formula: n samples of each prompt, for (prompt, answer) lengths, over all steps.

    An answer of `out` tokens is seen with 1 to out - 2 of them: the last is never stored, and the step that samples it
    leaves no table.
    """
    entries = blocks = copied = 0
    for prefix, out in lengths:
        copied += branch_blocks(prefix, 1, n, block).copied if out > 1 else 0
        for stored in range(1, out - 1):
            total, full = branch_table(prefix, stored, block)
            entries += n * total
            blocks += full + n * (total - full)
    return Sharing(entries, blocks, copied)


def tokens_apart(film: Iterable[Mapping[str, Any]]) -> float:
    """How many tokens ago the branches of a film had their last token in common: the mean over steps."""
    apart = []
    for event in film:
        texts = [one["token_ids"] for one in event["sequences"]] if event["kind"] == "step" else []
        if len(texts) > 1:
            common = next((i for i, column in enumerate(zip(*texts)) if len(set(column)) > 1), len(texts[0]))
            apart.append(len(texts[0]) - common)
    return sum(apart) / len(apart) if apart else 0.0
