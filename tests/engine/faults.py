"""Named faults in scheduler and engine, one line of code each. `make mutants` plants them one at a time, with those of
`tests/cache/faults.py`: the default tests must notice every one.
"""

from __future__ import annotations

from tests.cache.faults import Fault

SCHEDULER = "scheduling/scheduler.py"
ADMISSION = "scheduling/admission.py"
QUEUES = "scheduling/queues.py"
POLICIES = "scheduling/policies.py"
PLAN = "scheduling/plan.py"
REQUEST = "scheduling/request.py"
PREEMPTION = "scheduling/preemption.py"
BATCH = "backends/batch.py"
ENGINE = "engine/llm_engine.py"
OUTPUTS = "engine/output_processor.py"

# `file` is below mini_engine/.
FAULTS = [
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
    Fault("the budget is refunded to nobody and charged to nobody", PLAN, "        self.budget -= num_tokens\n", ""),
    Fault(
        "a long prompt starves the decodes behind it",
        SCHEDULER,
        "return min(num_missing, max(1, budget - num_behind))",
        "return min(num_missing, budget)",
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
    Fault(
        "tokens of a failed step are kept",
        ENGINE,
        "        self._outputs.rewind(list(self.scheduler.requests.values()))\n",
        "",
    ),
    Fault(
        "every branch draws as the first",
        OUTPUTS,
        "Sampler(request.params, request.eos_token_ids, index=index)",
        "Sampler(request.params, request.eos_token_ids, index=0)",
    ),
    Fault("min_tokens off by one", OUTPUTS, "if sampler.is_argmax(position):", "if sampler.is_argmax(position + 1):"),
]
