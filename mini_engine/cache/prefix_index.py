"""Finding computed blocks by content: one dictionary from a block's name to the blocks that hold it.

The name of a block covers everything before it (see `hashing`), so walking a prompt's names from the first block to the
first miss finds its longest computed prefix. This is vLLM's structure; `radix` has SGLang's, with the same answers.
"""

from __future__ import annotations

from array import array
from typing import Protocol

from mini_engine.cache.hashing import Namespace, TokenChain


class BlockIndex(Protocol):
    """What the cache manager needs of an index of published blocks."""

    num_collisions: int  # sequences that met a block under one of their names that holds something else

    def match(self, chain: TokenChain, limit: int) -> list[int]:
        """The blocks that hold the longest published prefix of the chain, at most limit of them. Changes nothing."""
        ...

    def publish(self, chain: TokenChain, start: int, blocks: list[int], parent: int | None) -> int:
        """Enter blocks that hold blocks start, start + 1, ... of the chain; how many were entered.

        parent is a published block that holds block start - 1, None when start is 0. Blocks with equal content (twins)
        are all kept. Stops at a collision: what follows it could not be told apart either.
        """
        ...

    def evict(self, block: int) -> None:
        """Forget a block. Its twins stay; blocks that follow it are out of reach until its content is back."""
        ...

    def blocks(self) -> set[int]:
        """All blocks entered."""
        ...

    def history(self, block: int) -> list[int]:
        """The tokens from the first of the sequence to the last in this block."""
        ...

    def check(self) -> None:
        """AssertionError, naming the block, when the index contradicts itself."""
        ...


class _Entry:
    """One distinct content: the tokens of a block after one exact history, and the blocks that hold it."""

    __slots__ = ("blocks", "digest", "num_children", "parent", "tokens")

    def __init__(self, digest: bytes, tokens: array[int], parent: _Entry | Namespace) -> None:
        self.digest, self.tokens, self.parent = digest, tokens, parent
        self.blocks: dict[int, None] = {}  # an ordered set: a hit takes the first
        self.num_children = 0


class PrefixIndex:
    """The hash chain: name -> entry.

    A name alone proves nothing, hashes can collide. A hit compares the tokens as well, and its parent must be the very
    entry that the block before it hit, or for a first block the same model, adapter and salt. An entry without blocks
    stays while it has children. So a name means one history for as long as anything depends on it, and a hit is right
    whatever the hash function.
    """

    def __init__(self) -> None:
        self.num_collisions = 0
        self._entries: dict[bytes, _Entry] = {}
        self._entry_of: dict[int, _Entry] = {}

    def match(self, chain: TokenChain, limit: int) -> list[int]:
        """Follow the names from the first block on; tokens and parents are compared, so a collision ends the hit."""
        hits: list[int] = []
        parent: _Entry | Namespace = chain.hasher.namespace
        for digest, tokens in zip(chain.digests(limit)[:limit], chain.tokens):
            entry = self._entries.get(digest)
            if entry is None or not self._holds(entry, tokens, parent, chain) or not entry.blocks:
                break
            hits.append(next(iter(entry.blocks)))
            parent = entry
        return hits

    def publish(self, chain: TokenChain, start: int, blocks: list[int], parent: int | None) -> int:
        """Enter blocks under their names, twins behind those that are there; how many, up to a collision."""
        above = chain.hasher.namespace if parent is None else self._entry_of[parent]
        digests = chain.digests(start + len(blocks))
        for i, block in enumerate(blocks, start):
            digest, tokens = digests[i], chain.tokens[i]
            entry = self._entries.get(digest)
            if entry is None:
                entry = self._entries[digest] = _Entry(digest, tokens, above)
                if isinstance(above, _Entry):
                    above.num_children += 1
            elif not self._holds(entry, tokens, above, chain):
                return i - start
            entry.blocks[block] = None
            self._entry_of[block] = above = entry
        return len(blocks)

    def evict(self, block: int) -> None:
        """Forget a block, and every name that no block and no longer name needs."""
        entry = self._entry_of.pop(block)
        del entry.blocks[block]
        while not entry.blocks and not entry.num_children:
            del self._entries[entry.digest]
            if not isinstance(entry.parent, _Entry):
                break
            entry = entry.parent
            entry.num_children -= 1

    def blocks(self) -> set[int]:
        """All blocks entered."""
        return set(self._entry_of)

    def history(self, block: int) -> list[int]:
        """The tokens from the first of the sequence to the last in this block."""
        entry: _Entry | Namespace = self._entry_of[block]
        parts = []
        while isinstance(entry, _Entry):
            parts.append(entry.tokens)
            entry = entry.parent
        return [token for tokens in reversed(parts) for token in tokens]

    def check(self) -> None:
        """AssertionError, naming the block, when entries, blocks and numbers of children disagree."""
        for block, entry in self._entry_of.items():
            assert block in entry.blocks, f"block {block} points at an entry that does not list it"
            assert self._entries.get(entry.digest) is entry, f"the entry of block {block} is not under its name"
        children: dict[int, int] = {}
        for entry in self._entries.values():
            assert entry.blocks or entry.num_children, f"an entry without blocks or children: {list(entry.tokens)}"
            for block in entry.blocks:
                assert self._entry_of.get(block) is entry, f"block {block} is listed by an entry it does not point at"
            if isinstance(entry.parent, _Entry):
                children[id(entry.parent)] = children.get(id(entry.parent), 0) + 1
        for entry in self._entries.values():
            counted = children.get(id(entry), 0)
            assert entry.num_children == counted, f"{entry.num_children} children noted, {counted} found"

    def _holds(self, entry: _Entry, tokens: array[int], parent: _Entry | Namespace, chain: TokenChain) -> bool:
        """Whether an entry found by name is what the name promises: these tokens, after this parent."""
        if entry.parent == parent and entry.tokens == tokens:
            return True
        if not chain.collided:
            chain.collided = True
            self.num_collisions += 1
        return False
