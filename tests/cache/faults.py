"""Wrong versions of the cache, one edit each: (name, file, right text, wrong text). The tests must notice every one.

For a mutation run: apply one edit to a copy of the package, run tests/cache, expect a failure. Long because it is a list.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    file: str  # in mini_engine/cache
    right: str
    wrong: str


POOL, TABLES, SWAP, MANAGER = "block_pool.py", "block_tables.py", "swapping.py", "kv_manager.py"
INDEX, RADIX, HASHING = "prefix_index.py", "radix.py", "hashing.py"

FAULTS = [
    Fault(
        "forward free order",
        POOL,
        "in reversed(blocks):\n                self._check",
        "in blocks:\n                self._check",
    ),
    Fault(
        "blank blocks queue behind cached ones",
        POOL,
        "self._insert_after(self._last_blank, block)\n",
        "self._insert_after(self._prev[0], block)\n",
    ),
    Fault(
        "cached blocks are reused newest first",
        POOL,
        "self._insert_after(self._prev[0], block)",
        "self._insert_after(self._last_blank, block)",
    ),
    Fault(
        "a touched block stays in the free queue",
        POOL,
        "                self.free_queue.remove(block)\n            self._refs",
        "                pass\n            self._refs",
    ),
    Fault(
        "a reused block stays published",
        POOL,
        "            if self._published[block]:\n                self._unpublish(block)\n        return",
        "        return",
    ),
    Fault("the index is not told of an eviction", POOL, "        self._on_evict(block)\n", ""),
    Fault(
        "double free is ignored",
        POOL,
        '                if not refs[block]:\n                    raise ValueError(f"block {block} is free already: it was released more often than it was held")\n',
        "                if not refs[block]:\n                    continue\n",
    ),
    Fault(
        "a refused release is not undone",
        POOL,
        "                refs[block] += 1\n            raise",
        "                pass\n            raise",
    ),
    Fault(
        "allocation takes what there is",
        POOL,
        "        if n > len(self.free_queue):\n            raise NoFreeBlocksError(n, len(self.free_queue))\n",
        "        n = min(n, len(self.free_queue))\n",
    ),
    Fault(
        "a free blank block can be touched",
        POOL,
        "            if not (self._refs[block] or self._published[block]):",
        "            if False:",
    ),
    Fault(
        "the null block is handed out",
        POOL,
        "        blocks, block = [], following[0]\n        for _ in range(n):",
        "        blocks, block = [], 0\n        for _ in range(n):",
    ),
    Fault(
        "a hit without comparing tokens",
        INDEX,
        "if entry.parent == parent and entry.tokens == tokens:",
        "if entry.parent == parent:",
    ),
    Fault(
        "a hit without comparing what came before",
        INDEX,
        "if entry.parent == parent and entry.tokens == tokens:",
        "if entry.tokens == tokens:",
    ),
    Fault(
        "a twin replaces the older block",
        INDEX,
        "            entry.blocks[block] = None\n",
        "            entry.blocks = {block: None}\n",
    ),
    Fault(
        "evicting one twin evicts the name",
        INDEX,
        "        while not entry.blocks and not entry.num_children:",
        "        while not entry.num_children:",
    ),
    Fault(
        "names are forgotten while blocks follow them",
        INDEX,
        "        while not entry.blocks and not entry.num_children:",
        "        while not entry.blocks:",
    ),
    Fault("names are never forgotten", INDEX, "            del self._entries[entry.digest]\n", "            pass\n"),
    Fault(
        "a match goes on after a hollow entry",
        INDEX,
        "or not entry.blocks:\n                break",
        "or not entry.blocks:\n                continue",
    ),
    Fault("a collision is not counted", INDEX, "            self.num_collisions += 1\n", ""),
    Fault(
        "the tree forgets salts and adapters",
        RADIX,
        "return tokens if i else (chain.hasher.namespace, tokens)",
        "return tokens",
    ),
    Fault(
        "a split does not move the blocks",
        RADIX,
        "                self._node_of[block] = upper\n",
        "                pass\n",
    ),
    Fault(
        "the tree never prunes",
        RADIX,
        "        while node is not self._root and not node.children:",
        "        while False:",
    ),
    Fault("the tree matches past its limit", RADIX, "len(hits) == limit or not twins", "not twins"),
    Fault(
        "an edge is followed without comparing",
        RADIX,
        "or not twins or tokens != chain.tokens[len(hits)]:",
        "or not twins:",
    ),
    Fault("the salt is not hashed", HASHING, "for key in self.namespace", "for key in self.namespace[:2]"),
    Fault("the adapter is not hashed", HASHING, "for key in self.namespace", "for key in (self.model, self.salt)"),
    Fault(
        "the parent is not hashed",
        HASHING,
        "return sha256(parent + tokens.tobytes()).digest()",
        "return sha256(self.root + tokens.tobytes()).digest()",
    ),
    Fault(
        "keys run into each other",
        HASHING,
        '    return b"\\1" + len(data).to_bytes(8, "little") + data',
        "    return data",
    ),
    Fault(
        "a branch keeps its parent's last names",
        HASHING,
        "chain._digests = self._digests[:num_blocks]",
        "chain._digests = list(self._digests)",
    ),
    Fault(
        "a full hit leaves nothing to compute",
        MANAGER,
        "(len(request.token_ids) - 1) // self.block_size)",
        "len(request.token_ids) // self.block_size)",
    ),
    Fault(
        "a table grows by one block too many",
        TABLES,
        "missing = self._num_blocks(num_tokens) -",
        "missing = num_tokens // self.block_size + 1 -",
    ),
    Fault(
        "hits are taken after new blocks",
        TABLES,
        "        self.pool.touch(hits)  # before new blocks are taken, or those could be the hits\n        sequence.table += hits\n        self.grow(request, num_tokens)\n",
        "        new = self.pool.allocate(num_new)\n        self.pool.touch(hits)\n        sequence.table += hits + new\n",
    ),
    Fault(
        "free hits are not counted as needed",
        TABLES,
        "        num_needed = num_new + self._num_free_among(hits)\n        if",
        "        num_needed = num_new\n        if",
    ),
    Fault(
        "publish at admission",
        TABLES,
        "        return hit_tokens\n",
        "        request.num_computed_tokens, real = len(request.token_ids), request.num_computed_tokens\n        self.publish(request)\n        request.num_computed_tokens = real\n        return hit_tokens\n",
    ),
    Fault(
        "the sampled token counts as computed",
        MANAGER,
        "        num_full = request.num_computed_tokens // self.block_size\n",
        "        num_full = len(request.token_ids) // self.block_size\n",
    ),
    Fault(
        "decode-filled blocks are never published",
        MANAGER,
        "        if not self.enable_prefix_caching or num_full <= start:",
        "        if not self.enable_prefix_caching or num_full <= start or start:",
    ),
    Fault(
        "a copy gives up the shared block first",
        TABLES,
        "        (dst,) = self.pool.allocate(1)\n        sequence.table[i] = dst\n        self.pool.release([src])\n",
        "        self.pool.release([src])\n        (dst,) = self.pool.allocate(1)\n        sequence.table[i] = dst\n",
    ),
    Fault("copy on write drops the copy", TABLES, "        return ops\n", "        return []\n"),
    Fault("a copy in the wrong direction", TABLES, 'CacheOp("copy", src, dst)', 'CacheOp("copy", dst, src)'),
    Fault(
        "no copy on write",
        POOL,
        "        return self._refs[block] == 1 and not self._published[block]\n",
        "        return True\n",
    ),
    Fault(
        "published blocks are written in place",
        POOL,
        "        return self._refs[block] == 1 and not self._published[block]\n",
        "        return self._refs[block] == 1\n",
    ),
    Fault(
        "a copied block keeps its published state",
        TABLES,
        "        sequence.num_published = min(sequence.num_published, i)\n",
        "",
    ),
    Fault(
        "slot off by one at a block edge",
        TABLES,
        "        num_new = self._num_blocks(start + n)",
        "        num_new = self._num_blocks(start + n - 1)",
    ),
    Fault(
        "append forgets the copy when it counts",
        TABLES,
        "        if must_copy + num_new > self.pool.num_free:",
        "        if num_new > self.pool.num_free:",
    ),
    Fault(
        "a fork shares reserved blocks",
        TABLES,
        "        shared = parent.table[: self._num_blocks(num_tokens)]",
        "        shared = list(parent.table)",
    ),
    Fault("a fork adds no reference", TABLES, "        self.pool.touch(shared)\n", ""),
    Fault(
        "a branch's first own block is never published",
        TABLES,
        "        child.num_published = parent.num_published\n",
        "        child.num_published = 0 * parent.num_published + len(shared)\n",
    ),
    Fault(
        "the table is not emptied by free",
        TABLES,
        "        sequence.table.clear()\n        del",
        "        del",
    ),
    Fault(
        "host blocks leak at free",
        SWAP,
        "        super().free(request)\n        self.host_pool.release(sequence.host_blocks)\n",
        "        super().free(request)\n",
    ),
    Fault(
        "host blocks leak at swap in",
        SWAP,
        "        self.host_pool.release(sequence.host_blocks)\n        sequence.host_blocks = []\n",
        "        sequence.host_blocks = []\n",
    ),
    Fault(
        "swap out forgets the last block",
        SWAP,
        "        blocks = sequence.table[: self._num_blocks(request.num_computed_tokens)]\n        if",
        "        blocks = sequence.table[: request.num_computed_tokens // self.block_size]\n        if",
    ),
    Fault(
        "swap out keeps its published count",
        SWAP,
        "sequence.num_allocated = sequence.num_published = 0",
        "sequence.num_allocated = 0",
    ),
    Fault(
        "swap in mixes up the blocks",
        SWAP,
        "zip(sequence.host_blocks, blocks)]",
        "zip(sequence.host_blocks, reversed(blocks))]",
    ),
    Fault(
        "reset with blocks in use",
        MANAGER,
        "        if self.pool.num_free < self.pool.num_blocks or self.host_pool",
        "        if False and self.host_pool",
    ),
    Fault(
        "reset forgets what is on the host", MANAGER, " or self.host_pool.num_free < self.host_pool.num_blocks:", ":"
    ),
    Fault(
        "an impostor's table is filled",
        TABLES,
        "        if sequence.table is not request.block_table:",
        "        if False:",
    ),
    Fault(
        "trimming forgets to give the blocks back",
        TABLES,
        "        self.pool.release(sequence.table[num_blocks:])\n",
        "",
    ),
]
