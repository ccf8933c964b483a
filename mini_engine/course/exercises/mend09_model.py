"""What a prefix-caching allocator must hold, find and have free after any calls: a model to compare a learner's class with.

The model follows the blocks that the allocator hands out, by number, and says what is wrong with the first answer that is. Where
two blocks have one content (twins), either may be found, and once one of them was reused, the other may be lost.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mini_engine.course.expect import expect, expect_equal, fail

SIZE = 2


class Call(NamedTuple):
    """start(tokens), append(token) or release of the sequence `name`."""

    kind: str
    name: str
    tokens: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = ", ".join(map(str, self.tokens))
        return {"start": f"{self.name} = start([{text}])", "append": f"append({self.name}, {text})"}.get(
            self.kind, f"release({self.name})"
        )


class Model:
    """Blocks by number: who holds them, in which order they are free, and the prefix that each can be found by."""

    def __init__(self, num_blocks: int) -> None:
        self.free: OrderedDict[int, None] = OrderedDict((number, None) for number in range(num_blocks))
        self.tables: dict[str, list[int]] = {}
        self.said: dict[str, list[int]] = {}
        self.prefix: dict[int, tuple[int, ...]] = {}  # of a full block: all tokens up to its end
        self.doubtful: set[tuple[int, ...]] = set()  # had twins

    def refs(self, number: int) -> int:
        return sum(number in table for table in self.tables.values())

    def most_hits(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        known, hits = set(self.prefix.values()), []
        for end in range(SIZE, len(tokens) + 1, SIZE):
            if tuple(tokens[:end]) not in known:
                break
            hits.append(tuple(tokens[:end]))
        return hits

    def needed(self, tokens: Sequence[int]) -> int:
        """Free blocks that a start takes; exact where nothing has twins."""
        by_prefix = {prefix: number for number, prefix in self.prefix.items()}
        held = sum(by_prefix[prefix] not in self.free for prefix in self.most_hits(tokens))
        return -(-len(tokens) // SIZE) - held

    def is_doubtful(self, tokens: Sequence[int]) -> bool:
        return any(tuple(tokens[:end]) in self.doubtful for end in range(SIZE, len(tokens) + 1, SIZE))

    def take(self) -> int:
        number, _ = self.free.popitem(last=False)
        self.prefix.pop(number, None)
        self.doubtful &= set(self.prefix.values())
        return number

    def name(self, number: int, prefix: Sequence[int]) -> None:
        if tuple(prefix) in self.prefix.values():
            self.doubtful.add(tuple(prefix))
        self.prefix[number] = tuple(prefix)

    def may(self, call: Call) -> bool | None:
        """Whether there is room for the call; None where that depends on which of two twins is found."""
        if call.kind == "start":
            return None if self.is_doubtful(call.tokens) else self.needed(call.tokens) <= len(self.free)
        return call.kind == "release" or bool(len(self.said[call.name]) % SIZE or self.free)

    def started(self, call: Call, table: list[int], num_cached: int, case: str) -> None:
        """Follow a start that went well; AssertionError for a hit on other tokens, a hit too few, or a block that was not next."""
        tokens = list(call.tokens)
        hits, known = num_cached // SIZE, self.most_hits(tokens)
        doubtful = self.is_doubtful(tokens)
        right = hits <= len(known) and (doubtful or hits == len(known)) and num_cached % SIZE == 0
        expect(right, f"{case}: tokens found", expected=f"{len(known) * SIZE}", got=f"{num_cached}")
        for i, number in enumerate(table[:hits]):
            expect_equal(
                self.prefix.get(number), tuple(tokens[: (i + 1) * SIZE]), f"{case}: what hit block {number} holds"
            )
            self.free.pop(number, None)
        rest = range(hits * SIZE, len(tokens), SIZE)
        expect_equal(len(table), hits + len(rest), f"{case}: its blocks")
        new = [self.take() for _ in rest]
        expect_equal(table[hits:], new, f"{case}: the new blocks, those that have been free for longest")
        for number, first in zip(new, rest):
            if first + SIZE <= len(tokens):
                self.name(number, tokens[: first + SIZE])
        self.tables[call.name], self.said[call.name] = list(table), tokens

    def appended(self, call: Call) -> None:
        table, said = self.tables[call.name], self.said[call.name]
        if len(said) % SIZE == 0:
            table.append(self.take())
        said += call.tokens
        if len(said) % SIZE == 0:
            self.name(table[-1], said)

    def released(self, call: Call) -> None:
        table = self.tables.pop(call.name)
        del self.said[call.name]
        for number in reversed(table):
            if not self.refs(number):
                self.free[number] = None


def follow(kind: Any, num_blocks: int, calls: Iterable[Call]) -> None:
    """Make the calls, and compare after each; AssertionError that starts with the calls so far."""
    allocator, model = kind(num_blocks, SIZE), Model(num_blocks)
    sequences: dict[str, Any] = {}
    lines: list[str] = []
    for call in calls:
        if (call.kind == "start") == (call.name in sequences):
            continue  # a trace with a call left out
        lines.append(str(call))
        case = f"{num_blocks} blocks of {SIZE}: {'; '.join(lines)}"
        may, refused = model.may(call), False
        try:
            if call.kind == "start":
                sequence = allocator.start(list(call.tokens))
            elif call.kind == "append":
                allocator.append(sequences[call.name], *call.tokens)
            else:
                allocator.release(sequences.pop(call.name))
        except MemoryError:
            refused = True
            lines[-1] += " -> MemoryError"
            case += " -> MemoryError"
        except Exception as error:
            fail(
                f"{case}: the last call",
                expected="no error" if may else "MemoryError",
                got=f"{type(error).__name__}: {error}",
            )
        if may is not None:
            expect(
                refused != may,
                f"{case}: the last call",
                expected="room" if may else "MemoryError",
                got="MemoryError" if refused else "no error",
            )
        if not refused:
            if call.kind == "start":
                model.started(call, list(sequence.table), sequence.num_cached_tokens, case)
                sequences[call.name] = sequence
            elif call.kind == "append":
                model.appended(call)
            else:
                model.released(call)
        _compare(allocator, model, sequences, case)


def _compare(allocator: Any, model: Model, sequences: dict[str, Any], case: str) -> None:
    for name, sequence in sequences.items():
        expect_equal([list(block.tokens) for block in sequence.blocks], [model.said[name][i : i + SIZE] for i in range(0, len(model.said[name]), SIZE)], f"{case}: tokens in the blocks of {name}")  # fmt: skip
        expect_equal(list(sequence.table), model.tables[name], f"{case}: block table of {name}")
        expect_equal([block.ref_count for block in sequence.blocks], [model.refs(number) for number in model.tables[name]], f"{case}: ref_count of the blocks of {name}")  # fmt: skip
    expect_equal(list(allocator.free), list(model.free), f"{case}: free blocks, the next to be taken first")
    expect_equal([block.ref_count for block in allocator.free.values()], [0] * len(model.free), f"{case}: ref_count of the free blocks")  # fmt: skip
    names = {_digest(allocator, prefix): prefix for prefix in model.prefix.values()}
    blocks: dict[tuple[int, ...], set[int]] = {}
    for number, prefix in model.prefix.items():
        blocks.setdefault(prefix, set()).add(number)
    for digest, prefix in names.items():
        block = allocator.by_digest.get(digest)
        sure = prefix not in model.doubtful
        if block is None and not sure:
            continue
        expect(
            block is not None and block.number in blocks[prefix],
            f"{case}: by_digest, under the name of {list(prefix)[-SIZE:]} after {list(prefix)[:-SIZE]}",
            expected=f"block {' or '.join(map(str, sorted(blocks[prefix])))}",
            got=f"block {block.number}" if block else "nothing",
        )
    extra = [block for digest, block in allocator.by_digest.items() if digest not in names]
    expect(not extra, f"{case}: by_digest", expected=f"{len(names)} names", got=f"also a name for block {', '.join(str(block.number) for block in extra)}, which nobody filled so")  # fmt: skip


def _digest(allocator: Any, prefix: tuple[int, ...]) -> int:
    digest = 0
    for first in range(0, len(prefix), SIZE):
        digest = allocator.digest(digest, list(prefix[first : first + SIZE]))
    return digest


def trace(seed: int, length: int) -> list[Call]:
    """Random calls: prompts that begin alike, sequences that grow into the same text, and releases."""
    draw = random.Random(seed)
    calls: list[Call] = []
    alive: list[str] = []
    for number in range(length):
        kind = draw.choice(["start", "start", "append", "append", "append", "release"])
        if kind == "start" or not alive:
            name = "abcdefghijklmnopqrstuvwxyz"[number % 26]
            alive.append(name)
            calls.append(Call("start", name, tuple(draw.choice([1, 1, 2]) for _ in range(draw.randrange(1, 8)))))
        elif kind == "append":
            calls.append(Call("append", draw.choice(alive), (draw.choice([1, 1, 2]),)))
        else:
            calls.append(Call("release", alive.pop(draw.randrange(len(alive)))))
    return calls


GAP = [
    Call("start", "a", (1,)), Call("append", "a", (1,)),
    Call("start", "b", (1,)), *(Call("append", "b", (1,)) for _ in range(3)),
    Call("release", "a"), Call("start", "c", (2,)), Call("start", "d", (2, 1, 2, 1, 2)), Call("release", "c"),
    Call("start", "e", (1, 1, 1, 1)),
]  # fmt: skip
"""In 6 blocks: of two twins one is reused, so that a name is there whose parent is not."""


def any_calls(kind: Any) -> None:
    """Short traces first, one by hand at last; of the first that fails, calls are left out as long as it fails."""
    cases = [
        (3 + seed % 4, trace(100 * length + seed, length))
        for length, seeds in ((2, 20), (4, 40), (6, 40), (10, 40), (16, 40))
        for seed in range(seeds)
    ]
    for num_blocks, calls in (*cases, (6, GAP)):
        message = _failure(kind, num_blocks, calls)
        if message:
            raise AssertionError(_smallest(kind, num_blocks, calls, message))


def _failure(kind: Any, num_blocks: int, calls: list[Call]) -> str:
    try:
        follow(kind, num_blocks, calls)
    except AssertionError as error:
        return str(error)
    return ""


def _smallest(kind: Any, num_blocks: int, calls: list[Call], message: str) -> str:
    i = 0
    while i < len(calls):
        fewer = calls[:i] + calls[i + 1 :]
        shorter = _failure(kind, num_blocks, fewer)
        if shorter:
            calls, message = fewer, shorter
        else:
            i += 1
    return message
