"""A block allocator with prefix caching: block tables, reference counts, copy on write, least recently used eviction.

Written for the find-the-bug labs. It runs, it reads well, and nothing in the engine uses it: find out why.

    allocator = BlockAllocator(num_blocks=8, block_size=4)
    sequence = allocator.start([1, 2, 3, 4, 5])
    allocator.append(sequence, 6)
    allocator.release(sequence)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass
class Block:
    """One block of the cache and the tokens whose K/V it holds."""

    number: int
    ref_count: int = 0
    tokens: list[int] = field(default_factory=list)
    digest: int | None = None


@dataclass
class Sequence:
    """One request: its blocks in order, and how many of its first tokens were found in the cache."""

    blocks: list[Block] = field(default_factory=list)
    num_cached_tokens: int = 0

    @property
    def table(self) -> list[int]:
        """Its block numbers, in order."""
        return [block.number for block in self.blocks]


class BlockAllocator:
    """Blocks of block_size tokens. A block that nobody holds keeps its content until it is needed for something else."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free = OrderedDict((number, Block(number)) for number in range(num_blocks))
        self.by_digest: dict[int, Block] = {}

    def digest(self, parent: int, tokens: Tokens[int]) -> int:
        """The name of a block's content: its tokens, and through the parent's name all tokens before them."""
        packed = parent.to_bytes(8, "little") + b"".join(token.to_bytes(4, "little") for token in tokens)
        return int.from_bytes(sha256(packed).digest()[:8], "little")

    def start(self, prompt: Tokens[int]) -> Sequence:
        """Admit a prompt: share the blocks of its longest cached prefix, take new ones for the rest."""
        sequence, parent, is_hit = Sequence(), 0, True
        for first in range(0, len(prompt), self.block_size):
            tokens = prompt[first : first + self.block_size]
            is_full = len(tokens) == self.block_size
            digest = self.digest(parent, tokens) if is_full else None
            block = self.by_digest.get(digest) if is_hit and digest is not None else None
            if block is not None:
                self._hold(block)
                sequence.num_cached_tokens += self.block_size
            else:
                is_hit = False
                block = self._take()
                block.tokens = list(tokens)
                if digest is not None:
                    block.digest = digest
                    self.by_digest[digest] = block
            sequence.blocks.append(block)
            parent = digest or 0
        return sequence

    def append(self, sequence: Sequence, token: int) -> None:
        """Make room for one more token and enter it. A block that others hold too is copied before it is written."""
        last = sequence.blocks[-1]
        if len(last.tokens) == self.block_size:
            last = self._take()
            sequence.blocks.append(last)
        elif last.ref_count > 1:
            last.ref_count -= 1
            copy = self._take()
            copy.tokens = list(last.tokens)
            sequence.blocks[-1] = last = copy
        last.tokens.append(token)

    def release(self, sequence: Sequence) -> None:
        """Give up the blocks of a sequence. What they hold can be found until they are taken again."""
        for block in sequence.blocks:
            block.ref_count -= 1
            if block.ref_count == 0:
                self.free[block.number] = block

    def _hold(self, block: Block) -> None:
        if block.ref_count == 0:
            del self.free[block.number]
        block.ref_count += 1

    def _take(self) -> Block:
        """The block that has been free for longest, blank."""
        if not self.free:
            raise MemoryError("no free blocks")
        _, block = self.free.popitem(last=False)
        if block.digest is not None:
            self.by_digest.pop(block.digest, None)
        block.ref_count, block.tokens, block.digest = 1, [], None
        return block
