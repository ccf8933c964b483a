"""Finding computed blocks by content: a radix tree over the tokens themselves, as SGLang has it.

An edge of the tree is a run of blocks at which no two sequences part. Tokens are compared as they are, so nothing is
hashed and nothing can collide. Same interface and same answers as the hash chain in `prefix_index`.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable

from mini_engine.cache.hashing import TokenChain


class _Node:
    """An edge and where it leads: blocks start, start + 1, ... of every sequence that comes this way."""

    __slots__ = ("blocks", "children", "key", "parent", "start", "tokens")

    def __init__(self, parent: _Node | None, key: Hashable, start: int) -> None:
        self.parent: _Node = parent or self  # the root is its own parent
        self.key, self.start = key, start
        self.tokens: list[array[int]] = []
        self.blocks: list[dict[int, None]] = []  # for each block of the edge, its twins in order of publication
        self.children: dict[Hashable, _Node] = {}  # by the child's first block, see _key


class RadixPrefixIndex:
    """The radix tree. The root branches by model, adapter and salt as well as by tokens.

    Constant time per block, but for splitting an edge, which costs as much as walking down to where it is split.
    """

    def __init__(self) -> None:
        self.num_collisions = 0  # and stays 0
        self._root = _Node(None, None, 0)
        self._node_of: dict[int, _Node] = {}
        self._depth_of: dict[int, int] = {}  # position of a block in its sequence, in blocks

    def match(self, chain: TokenChain, limit: int) -> list[int]:
        """Walk down the tree as far as its tokens are the chain's and blocks hold them."""
        hits: list[int] = []
        node = self._root
        while len(hits) < limit:
            child = node.children.get(_key(chain, len(hits)))
            if child is None:
                return hits
            node = child
            for tokens, twins in zip(node.tokens, node.blocks):
                if len(hits) == limit or not twins or tokens != chain.tokens[len(hits)]:
                    return hits
                hits.append(next(iter(twins)))
        return hits

    def publish(self, chain: TokenChain, start: int, blocks: list[int], parent: int | None) -> int:
        """Enter blocks below their parent, splitting an edge where the tokens part; all of them, as nothing collides."""
        node = self._root if parent is None else self._node_of[parent]
        for i, block in enumerate(blocks, start):
            tokens, offset = chain.tokens[i], i - node.start
            if offset < len(node.tokens) and node.tokens[offset] != tokens:  # we part inside this edge
                node = self._split(node, offset)
            if offset == len(node.tokens) and (node.children or node is self._root):  # we part at its end
                node, offset = self._child(node, _key(chain, i), i), 0
            if offset == len(node.tokens):
                node.tokens.append(tokens)
                node.blocks.append({})
            node.blocks[offset][block] = None
            self._node_of[block], self._depth_of[block] = node, i
        return len(blocks)

    def evict(self, block: int) -> None:
        """Forget a block, and cut off edges that no block holds and nothing follows."""
        node = self._node_of.pop(block)
        del node.blocks[self._depth_of.pop(block) - node.start][block]
        while node is not self._root and not node.children:  # cut off what nobody holds and nothing follows
            while node.blocks and not node.blocks[-1]:
                node.blocks.pop()
                node.tokens.pop()
            if node.blocks:
                break
            del node.parent.children[node.key]
            node = node.parent

    def blocks(self) -> set[int]:
        """All blocks entered."""
        return set(self._node_of)

    def history(self, block: int) -> list[int]:
        """The tokens from the root to the last in this block."""
        node = self._node_of[block]
        parts = node.tokens[: self._depth_of[block] - node.start + 1]
        while node is not self._root:
            node = node.parent
            parts = node.tokens + parts
        return [token for tokens in parts for token in tokens]

    def check(self) -> None:
        """AssertionError, naming the block, when edges and blocks disagree."""
        num_found, stack = 0, [self._root]
        while stack:
            node = stack.pop()
            assert len(node.tokens) == len(node.blocks), f"edge at depth {node.start}: tokens and blocks differ"
            for depth, twins in enumerate(node.blocks, start=node.start):
                num_found += len(twins)
                for block in twins:
                    assert self._node_of.get(block) is node, f"block {block} is listed by a node it does not point at"
                    assert self._depth_of.get(block) == depth, f"block {block} is at depth {depth}, not where noted"
            if node is not self._root:
                assert node.children or (node.blocks and node.blocks[-1]), f"dead leaf at depth {node.start}"
            for key, child in node.children.items():
                assert child.key == key, f"child under {key!r} calls itself {child.key!r}"
                assert child.parent is node, f"child under {key!r} has another parent"
                assert child.start == node.start + len(node.tokens), f"gap before depth {child.start}"
                stack.append(child)
        assert num_found == len(self._node_of) == len(self._depth_of), "a block points at a node outside the tree"

    def _child(self, node: _Node, key: Hashable, start: int) -> _Node:
        child = node.children.get(key)
        if child is None:
            child = node.children[key] = _Node(node, key, start)
        return child

    def _split(self, node: _Node, offset: int) -> _Node:
        """Cut an edge in two before its block number offset, and return the upper part, a new node."""
        upper = _Node(node.parent, node.key, node.start)
        upper.tokens, node.tokens = node.tokens[:offset], node.tokens[offset:]
        upper.blocks, node.blocks = node.blocks[:offset], node.blocks[offset:]
        node.parent.children[node.key] = upper
        node.parent, node.key, node.start = upper, node.tokens[0].tobytes(), node.start + offset
        upper.children[node.key] = node
        for twins in upper.blocks:
            for block in twins:
                self._node_of[block] = upper
        return upper


def _key(chain: TokenChain, i: int) -> Hashable:
    """How a node finds the child that begins with block i of a chain."""
    tokens = chain.tokens[i].tobytes()
    return tokens if i else (chain.hasher.namespace, tokens)
