"""Finding computed blocks by content: one dictionary from a block's name to the blocks that hold it.

The name of a block covers everything before it (see `hashing`), so walking a prompt's names from the first block to the
first miss finds its longest computed prefix. This is vLLM's structure; `radix` has SGLang's, with the same answers.
"""

from __future__ import annotations

from typing import Protocol

from mini_engine.cache.hashing import TokenChain


class BlockIndex(Protocol):
    """What the cache manager needs of an index of published blocks."""

    num_collisions: int  # sequences that met a block under one of their names that holds something else

    def match(self, chain: TokenChain, limit: int) -> list[int]:
        """The blocks that hold the longest published prefix of the chain, at most limit of them. Changes nothing."""
        ...

    def publish(self, chain: TokenChain, i: int, block: int, parent: int | None) -> bool:
        """Enter a block that holds block i of the chain; parent is a published block that holds block i - 1.

        Blocks with equal content (twins) are all kept. False, and nothing is entered, on a collision.
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

    def __init__(self, digest: bytes, tokens, parent: _Entry | None) -> None:
        self.digest, self.tokens, self.parent = digest, tokens, parent
        self.blocks: dict[int, None] = {}  # an ordered set: a hit takes the first
        self.num_children = 0


class PrefixIndex:
    """The hash chain: name -> entry.

    A name alone proves nothing, hashes can collide. A hit compares the tokens as well, and its parent must be the very
    entry that the block before hit. An entry without blocks stays while it has children, so a name means one history
    for as long as anything depends on it, and a hit is right whatever the hash function.
    """

    def __init__(self) -> None:
        self.num_collisions = 0
        self._entries: dict[bytes, _Entry] = {}
        self._entry_of: dict[int, _Entry] = {}

    def match(self, chain: TokenChain, limit: int) -> list[int]:
        hits: list[int] = []
        entry = None
        for i in range(limit):
            entry = self._lookup(chain, i, parent=entry)
            if entry is None or not entry.blocks:
                break
            hits.append(next(iter(entry.blocks)))
        return hits

    def publish(self, chain: TokenChain, i: int, block: int, parent: int | None) -> bool:
        parent_entry = None if parent is None else self._entry_of[parent]
        entry = self._lookup(chain, i, parent_entry)
        if entry is None:
            digest = chain.digest(i)
            if digest in self._entries:
                return False
            entry = self._entries[digest] = _Entry(digest, chain.tokens[i], parent_entry)
            if parent_entry is not None:
                parent_entry.num_children += 1
        entry.blocks[block] = None
        self._entry_of[block] = entry
        return True

    def evict(self, block: int) -> None:
        entry: _Entry | None = self._entry_of.pop(block)
        del entry.blocks[block]
        while entry is not None and not entry.blocks and not entry.num_children:
            del self._entries[entry.digest]
            entry = entry.parent
            if entry is not None:
                entry.num_children -= 1

    def blocks(self) -> set[int]:
        return set(self._entry_of)

    def history(self, block: int) -> list[int]:
        entry: _Entry | None = self._entry_of[block]
        parts = []
        while entry is not None:
            parts.append(entry.tokens)
            entry = entry.parent
        return [token for tokens in reversed(parts) for token in tokens]

    def check(self) -> None:
        for block, entry in self._entry_of.items():
            assert block in entry.blocks, f"block {block} points at an entry that does not list it"
            assert self._entries.get(entry.digest) is entry, f"the entry of block {block} is not under its name"
        children: dict[int, int] = {}
        for entry in self._entries.values():
            assert entry.blocks or entry.num_children, f"an entry without blocks or children: {list(entry.tokens)}"
            for block in entry.blocks:
                assert self._entry_of.get(block) is entry, f"block {block} is listed by an entry it does not point at"
            if entry.parent is not None:
                children[id(entry.parent)] = children.get(id(entry.parent), 0) + 1
        for entry in self._entries.values():
            counted = children.get(id(entry), 0)
            assert entry.num_children == counted, f"{entry.num_children} children noted, {counted} found"

    def _lookup(self, chain: TokenChain, i: int, parent: _Entry | None) -> _Entry | None:
        """The entry for block i of the chain after parent; None when there is none, or only a colliding one."""
        entry = self._entries.get(chain.digest(i))
        if entry is None:
            return None
        if entry.parent is parent and entry.tokens == chain.tokens[i]:
            return entry
        if not chain.collided:
            chain.collided = True
            self.num_collisions += 1
        return None
