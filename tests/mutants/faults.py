"""Named faults, one line of code each. `make mutants` plants them one at a time: the default tests must notice every one."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """In `file` (below mini_engine/), `right` becomes `wrong`. `right` stands there exactly once."""

    name: str
    file: str
    right: str
    wrong: str


POOL, TABLES, MANAGER = "cache/block_pool.py", "cache/block_tables.py", "cache/kv_manager.py"
SWAPPING, HASH, RADIX, HASHING = "cache/swapping.py", "cache/prefix_index.py", "cache/radix.py", "cache/hashing.py"
SCHEDULER, ADMISSION, QUEUES = "scheduling/scheduler.py", "scheduling/admission.py", "scheduling/queues.py"
POLICIES, PLAN, REQUEST = "scheduling/policies.py", "scheduling/plan.py", "scheduling/request.py"
PREEMPTION, BATCH, ENGINE, OUTPUTS = "scheduling/preemption.py", "backends/batch.py", "engine.py", "output_processor.py"

FAULTS = [
    # the pool
    Fault("free in forward order", POOL, "for block in reversed(blocks):", "for block in blocks:"),
    Fault(
        "blank blocks queue behind cached ones",
        POOL,
        "self.free_queue.push_blank(block)\n\n    def publish",
        "self.free_queue.push_cached(block)\n\n    def publish",
    ),
    Fault("allocation takes what there is", POOL, "if n > len(self.free_queue):", "if not len(self.free_queue):"),
    Fault(
        "a reused block stays findable",
        POOL,
        "            if self._published[block]:\n                self._unpublish(block)",
        "            pass",
    ),
    Fault(
        "a hit stays in the free queue",
        POOL,
        "                self.free_queue.remove(block)\n            self._refs",
        "                pass\n            self._refs",
    ),
    Fault(
        "double free unnoticed",
        POOL,
        "if not refs[block]:\n                    raise",
        "if refs[block] is None:\n                    raise",
    ),
    Fault(
        "a half-done release is not taken back",
        POOL,
        "                refs[block] += 1\n            raise",
        "                pass\n            raise",
    ),
    Fault("the count of blank blocks is not kept", POOL, "        self._num_blank -= n\n", ""),
    # tables, sharing, copies
    Fault(
        "new blocks before hits are held",
        TABLES,
        "        self.pool.touch(hits)  # before new blocks are taken, or those could be the hits\n        sequence.table += hits\n        sequence.table += self.pool.allocate(num_new)",
        "        new = self.pool.allocate(num_new)\n        self.pool.touch(hits)\n        sequence.table += hits + new",
    ),
    Fault(
        "hits that nobody holds count as free room",
        TABLES,
        "num_needed = num_new + self._num_free_among(hits)",
        "num_needed = num_new",
    ),
    Fault("a shared block is written to", TABLES, "not self.pool.is_private(sequence.table[i])", "False"),
    Fault(
        "a published block is written to",
        POOL,
        "self._refs[block] == 1 and not self._published[block]",
        "self._refs[block] == 1",
    ),
    Fault(
        "a copy is dropped",
        TABLES,
        "ops = [self._copy(sequence, request.num_computed_tokens // self.block_size)] if must_copy else []",
        "ops = []\n        if must_copy:\n            self._copy(sequence, request.num_computed_tokens // self.block_size)",
    ),
    Fault("a copy goes the wrong way", TABLES, 'CacheOp("copy", src, dst)', 'CacheOp("copy", dst, src)'),
    Fault("a copied block is not given up", TABLES, "        self.pool.release([src])\n", ""),
    Fault("a fork takes no references", TABLES, "        self.pool.touch(shared)\n", ""),
    Fault(
        "a fork shares reserved blocks too", TABLES, "parent.table[: self._num_blocks(num_tokens)]", "parent.table[:]"
    ),
    Fault(
        "the table is not emptied when it is freed",
        TABLES,
        "        self.pool.release(sequence.table)\n        sequence.table.clear()",
        "        self.pool.release(sequence.table)",
    ),
    Fault(
        "blocks rounded down",
        TABLES,
        "return -(-num_tokens // self.block_size)",
        "return num_tokens // self.block_size",
    ),
    # what can be found
    Fault(
        "published when full, not when computed",
        MANAGER,
        "num_full = request.num_computed_tokens // self.block_size\n        sequence",
        "num_full = min(len(request.block_table), len(request.token_ids) // self.block_size)\n        sequence",
    ),
    Fault(
        "a full hit leaves nothing to compute",
        MANAGER,
        "(len(request.token_ids) - 1) // self.block_size",
        "len(request.token_ids) // self.block_size",
    ),
    Fault("reset while blocks are in use", MANAGER, "if self.pool.num_free < self.pool.num_blocks or", "if"),
    Fault(
        "a hit without a look at the tokens", HASH, "if entry.parent == parent and entry.tokens == tokens:", "if True:"
    ),
    Fault(
        "a hit without a look at what came before",
        HASH,
        "if entry.parent == parent and entry.tokens == tokens:",
        "if entry.tokens == tokens:",
    ),
    Fault(
        "hits go on after a miss",
        HASH,
        "or not entry.blocks:\n                break",
        "or not entry.blocks:\n                continue",
    ),
    Fault(
        "an evicted block takes its twins along",
        HASH,
        "        del entry.blocks[block]\n",
        "        entry.blocks.clear()\n",
    ),
    Fault(
        "an evicted block stays in the tree",
        RADIX,
        "        del node.blocks[self._depth_of.pop(block) - node.start][block]",
        "        self._depth_of.pop(block)",
    ),
    Fault(
        "the tree forgets the tokens it split at", RADIX, "not twins or tokens != chain.tokens[len(hits)]", "not twins"
    ),
    Fault(
        "salts share",
        HASHING,
        "self.namespace: Namespace = (model, adapter, salt)",
        "self.namespace: Namespace = (model, adapter, None)",
    ),
    Fault(
        "adapters share",
        MANAGER,
        "self._hasher.for_request(request.adapter, request.cache_salt)",
        "self._hasher.for_request(None, request.cache_salt)",
    ),
    Fault(
        "names of blocks do not chain",
        HASHING,
        "digest = hash_block(digest, tokens)",
        "digest = hash_block(None, tokens)",
    ),
    # swap
    Fault(
        "swapped out to the wrong block",
        SWAPPING,
        'CacheOp("swap_out", src, dst) for src, dst in zip(blocks,',
        'CacheOp("swap_out", src, dst) for src, dst in zip(blocks[::-1],',
    ),
    Fault(
        "swap leaks host blocks",
        SWAPPING,
        "        self.host_pool.release(sequence.host_blocks)\n        sequence.host_blocks = []\n",
        "        sequence.host_blocks = []\n",
    ),
    Fault(
        "swap operations are dropped",
        SCHEDULER,
        "draft.cache_ops += self.preemption.preempt(victim, self.kv)",
        "self.preemption.preempt(victim, self.kv)",
    ),
    Fault(
        "copies before swaps, whatever was planned",
        PLAN,
        "cache_ops=tuple(self.cache_ops)",
        'cache_ops=tuple(sorted(self.cache_ops, key=lambda op: op.kind != "copy"))',
    ),
    Fault(
        "no way back when the host is full",
        PREEMPTION,
        "            return super().preempt(request, kv)\n",
        "            raise\n",
    ),
    # the plan
    Fault("the budget is refunded to nobody and charged to nobody", PLAN, "        self.budget -= num_tokens\n", ""),
    Fault(
        "a long prompt starves the decodes behind it",
        SCHEDULER,
        "share = max(1, draft.budget - (len(running) - position - 1))",
        "share = draft.budget",
    ),
    Fault(
        "newcomers take what a victim gave up",
        SCHEDULER,
        "            if not draft.preempted:  # nobody",
        "            if True:  # nobody",
    ),
    Fault("a lone sequence that outgrows the pool never ends", SCHEDULER, "if len(self.running) == 1:", "if False:"),
    Fault(
        "one that outgrew the pool while preempted waits for ever",
        SCHEDULER,
        "if self.admission.num_blocks(request.num_tokens) > self.config.num_blocks:",
        "if False:",
    ),
    Fault("the victim is forgotten", SCHEDULER, "        self.waiting.add(victim)\n", ""),
    Fault("a victim keeps its computed tokens", PREEMPTION, "        request.num_computed_tokens = 0\n", ""),
    Fault(
        "prompts are cut although they may not be",
        SCHEDULER,
        "if num_tokens < remaining <= self.config.max_num_batched_tokens and not self.config.enable_chunked_prefill:",
        "if False:",
    ),
    Fault(
        "branches to come take no seats",
        SCHEDULER,
        "self.num_seats_taken + request.num_seqs <=",
        "self.num_seats_taken + 1 <=",
    ),
    Fault("promises to running prompts are forgotten", ADMISSION, " - sum(self._owed(other) for other in running)", ""),
    Fault("no watermark", ADMISSION, "self.kv.num_free_blocks - self.reserve -", "self.kv.num_free_blocks -"),
    Fault("the first to start is the first to go", POLICIES, "return running[-1]", "return running[0]"),
    Fault(
        "served in order of admission whatever the priority",
        QUEUES,
        "insort(self.running, request, key=lambda running: running.rank)",
        "self.running.append(request)",
    ),
    Fault(
        "a stale place in the queue counts",
        QUEUES,
        "if self._tickets.get(request) == ticket:",
        "if request in self._tickets:",
    ),
    # commit and rollback
    Fault(
        "published at admission",
        SCHEDULER,
        "        draft.add_chunk(request, num_tokens)\n        return True",
        "        draft.add_chunk(request, num_tokens)\n        request.num_computed_tokens += num_tokens\n        self.kv.publish(request)\n        request.num_computed_tokens -= num_tokens\n        return True",
    ),
    Fault(
        "blocks filled by decoding are not published",
        SCHEDULER,
        "if end // self.kv.block_size > start // self.kv.block_size:",
        "if num_tokens > 1:",
    ),
    Fault(
        "a late token reaches a new request of the same name",
        SCHEDULER,
        "if request is None or request.status is not RequestStatus.RUNNING or request.num_computed_tokens != start:",
        "if request is None:",
    ),
    Fault(
        "blocks of a failed step are kept", SCHEDULER, "                self.kv.trim(request)", "                pass"
    ),
    Fault(
        "a copy that may not have happened is trusted",
        SCHEDULER,
        "if copied and not copied.isdisjoint(request.block_table):",
        "if False:",
    ),
    Fault(
        "a swap that may not have happened is trusted",
        SCHEDULER,
        "            if request.status is RequestStatus.SWAPPED:\n                self.kv.free",
        "            if False:\n                self.kv.free",
    ),
    Fault("branches share one list of tokens", REQUEST, "        twin.token_ids = list(self.token_ids)\n", ""),
    Fault(
        "an abort keeps the blocks",
        QUEUES,
        "        self.kv.free(request)\n        request.status = FINISHED[reason]",
        "        request.status = FINISHED[reason]",
    ),
    # from plan to batch, from logits to answer
    Fault(
        "a slot off by one at a block edge",
        BATCH,
        "slots.append(table[start // size] * size + start % size)",
        "slots.append(table[(start - 1) // size] * size + start % size)",
    ),
    Fault(
        "the table is not truncated when its row is reused",
        BATCH,
        "self._tables[row] = 0  # whoever",
        "pass  # whoever",
    ),
    Fault(
        "a copied block is not seen by the backend",
        BATCH,
        "self._keep(request, start // size, num_blocks)",
        "self._keep(request, -(-start // size), num_blocks)",
    ),
    Fault("tables of a failed step are kept", ENGINE, "        self._batches.clear()\n", ""),
    Fault("tokens of a failed step are kept", ENGINE, "        self._outputs.rewind(planned)\n", ""),
    Fault(
        "every branch draws as the first",
        OUTPUTS,
        "Sampler(request.params, request.eos_token_ids, index=index)",
        "Sampler(request.params, request.eos_token_ids, index=0)",
    ),
    Fault("min_tokens off by one", OUTPUTS, "if sampler.is_argmax(position):", "if sampler.is_argmax(position + 1):"),
]
