"""A hypothesis state machine that does everything to an engine that a caller or a broken backend can do."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mini_engine.backends import AuditBackend
from mini_engine.backends.audit import Slot
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.engine.invariants import check_plan
from mini_engine.outputs import RequestOutput
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Scheduler, StepPlan
from tests.engine.oracle import cold

VOCAB = 11
EOS = 10
GARBAGE = Slot(-1, -1, -1)


class Crash(RuntimeError):
    """What a backend raises here."""


class CrashingBackend(AuditBackend):
    """Crashes when told to, and then leaves garbage wherever the plan would have let it write."""

    crash: str | None = None  # "ops", "forward" or "sampling"

    def apply_ops(self, ops: Any) -> None:
        if self.crash == "ops":
            self._spoil_ops(ops)
            raise Crash
        super().apply_ops(ops)
        self._ops = ops

    def execute(self, batch: Any) -> Any:
        if self.crash in ("ops", "forward"):  # a plan without operations crashes here
            for slot in batch.slot_mapping.tolist():
                self._pool[slot // self.block_size][slot % self.block_size] = GARBAGE
            raise Crash
        result = super().execute(batch)
        if self.crash == "sampling":
            raise Crash
        return result

    def _spoil_ops(self, ops: Any) -> None:
        for op in ops:
            pool = self._swap if op.kind == "swap_out" else self._pool
            pool[op.dst] = [GARBAGE] * self.block_size


class CheckedScheduler(Scheduler):
    """Checks every plan before anyone executes it."""

    def schedule(self) -> StepPlan:
        plan = super().schedule()
        check_plan(self, plan)
        return plan


@st.composite
def configs(draw: Any) -> EngineConfig:
    preemption = draw(st.sampled_from(["recompute", "swap"]))
    return EngineConfig(
        num_blocks=draw(st.one_of(st.integers(1, 10), st.integers(11, 40))),
        block_size=draw(st.sampled_from([1, 2, 5, 16])),
        max_num_seqs=draw(st.integers(1, 6)),
        max_num_batched_tokens=draw(st.one_of(st.integers(1, 6), st.integers(7, 40))),
        max_model_len=draw(st.sampled_from([None, None, 12, 30])),
        enable_prefix_caching=draw(st.booleans()),
        prefix_index=draw(st.sampled_from(["hash", "radix"])),
        enable_chunked_prefill=draw(st.booleans()),
        admission=draw(st.sampled_from(["whole_prompt", "first_chunk", "worst_case"])),
        policy=draw(st.sampled_from(["fcfs", "priority", "shortest_first"])),
        preemption=preemption,
        num_swap_blocks=draw(st.integers(1, 6)) if preemption == "swap" else 0,
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1, 0.5])),
    )


@st.composite
def sampling_params(draw: Any) -> SamplingParams:
    max_tokens = draw(st.integers(0, 14))
    return SamplingParams(
        n=draw(st.sampled_from([1, 1, 2, 3])),
        temperature=draw(st.sampled_from([0.0, 1.0])),
        min_tokens=draw(st.integers(0, min(3, max_tokens))),
        max_tokens=max_tokens,
        stop_token_ids=draw(st.sampled_from([(), (), (3,)])),
        ignore_eos=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
        logprobs=draw(st.sampled_from([None, None, 2])),
    )


class EngineMachine(RuleBasedStateMachine):
    """Requests come and go, fork, crash and are aborted; every output is the cold one, and no block is ever lost."""

    rules_run = 0
    steps_run = 0

    @initialize(config=configs())
    def start(self, config: EngineConfig) -> None:
        self.config = config
        self.backend = CrashingBackend(VOCAB, eos_token_ids=(EOS,), max_model_len=64)
        self.engine = LLMEngine(config, self.backend, scheduler=CheckedScheduler)
        self.asked: dict[str, tuple[list[int], SamplingParams]] = {}
        self.prefixes: dict[tuple[str, int], list[int]] = {}  # what a forked branch had already said
        self.aborted: set[str] = set()
        self.num_added = 0

    # -- what a caller does --------------------------------------------------------------------------------------------

    @rule(
        prompt=st.lists(st.integers(0, 2), min_size=1, max_size=40),
        repeat=st.booleans(),
        params=sampling_params(),
        priority=st.integers(-1, 1),
        salt=st.sampled_from([None, None, None, "a"]),
        data=st.randoms(use_true_random=False),
    )
    def add(
        self,
        prompt: list[int],
        repeat: bool,
        params: SamplingParams,
        priority: int,
        salt: str | None,
        data: random.Random,
    ) -> None:
        if repeat and self.asked:  # the prompts of others, so that there is something to hit
            prompt = data.choice(list(self.asked.values()))[0] + prompt[: data.randrange(3)]
        request_id = f"r{self.num_added}"
        config = self.config
        too_long = (
            len(prompt) > config.num_blocks * config.block_size
            or len(prompt) > (config.max_model_len or 64)
            or (not config.enable_chunked_prefill and len(prompt) > config.max_num_batched_tokens)
        )
        before = self.engine.stats()
        try:
            self.engine.add_request(request_id, prompt, params, priority=priority, cache_salt=salt)
        except ValueError:
            assert too_long or params.n > config.max_num_seqs
            assert self.engine.stats() == before
            return
        assert not too_long
        self.num_added += 1
        self.asked[request_id] = (prompt, params)

    @precondition(lambda self: self.asked)
    @rule(data=st.randoms(use_true_random=False))
    def add_twice(self, data: random.Random) -> None:
        before = self.engine.stats()
        try:
            self.engine.add_request(data.choice(list(self.asked)), [1])
        except ValueError:
            assert self.engine.stats() == before
        else:
            raise AssertionError("a duplicate id was accepted")

    @rule(times=st.integers(1, 8))
    def step(self, times: int) -> None:
        for _ in range(times):
            self._step()

    @rule(where=st.sampled_from(["ops", "forward", "sampling"]))
    def crash(self, where: str) -> None:
        self.backend.crash = where
        try:
            self._step()
        except Crash:
            pass
        finally:
            self.backend.crash = None

    @precondition(lambda self: self.asked)
    @rule(data=st.randoms(use_true_random=False))
    def abort(self, data: random.Random) -> None:
        request_id = data.choice(list(self.asked))
        assert self.engine.abort(request_id) == (request_id not in self.aborted)
        self.aborted.add(request_id)
        assert all(key[0] != request_id for key in self.engine.scheduler.requests)

    @precondition(lambda self: self.engine.scheduler.requests)
    @rule(data=st.randoms(use_true_random=False), last_token_id=st.one_of(st.none(), st.integers(0, VOCAB - 1)))
    def fork(self, data: random.Random, last_token_id: int | None) -> None:
        source = data.choice(list(self.engine.scheduler.requests.values()))
        said = source.token_ids[source.num_prompt_tokens :]
        params = self.asked[source.request_id][1]
        ends = last_token_id in params.all_stop_token_ids((EOS,)) and len(said) > params.min_tokens
        before = self.engine.stats()
        try:
            index = self.engine.fork(source.request_id, source.index, last_token_id=last_token_id)
        except ValueError:
            assert last_token_id is not None
            assert ends or not said
            assert self.engine.stats() == before
            return
        if last_token_id is not None:
            assert said
            assert not ends
            said[-1] = last_token_id
        self.prefixes[source.request_id, index] = said

    @rule()
    def reset(self) -> None:
        stats = self.engine.stats()
        idle = stats.num_free_blocks == self.config.num_blocks and stats.num_swapped == 0
        assert self.engine.reset_prefix_cache() == idle
        if idle:
            assert self.engine.stats().num_cached_blocks == 0

    # -- what must come of it ------------------------------------------------------------------------------------------

    def _step(self) -> None:
        type(self).steps_run += 1
        for output in self.engine.step():
            self._check_output(output)

    def _check_output(self, output: RequestOutput) -> None:
        prompt, params = self.asked[output.request_id]
        assert output.prompt_token_ids == prompt
        for completion in output.outputs:
            key = (output.request_id, completion.index)
            capacity = self.config.num_blocks * self.config.block_size
            tokens, reason = cold(
                self.backend,
                prompt,
                params,
                index=completion.index,
                prefix=self.prefixes.get(key, ()),
                capacity=capacity,
                max_model_len=self.config.max_model_len,
            )
            assert completion.token_ids == tokens[: len(completion.token_ids)], key
            if params.logprobs is not None:
                assert completion.logprobs is not None
                assert len(completion.logprobs) == len(completion.token_ids)
            if completion.finish_reason == "abort":
                assert output.request_id in self.aborted
            elif completion.finished:
                assert (completion.token_ids, completion.finish_reason) == (tokens, reason), key
        if output.finished:
            del self.asked[output.request_id]
            self.aborted.discard(output.request_id)

    @invariant()
    def nothing_is_inconsistent(self) -> None:
        type(self).rules_run += 1
        self.engine.check_invariants()
        for request in self.engine.scheduler.running:
            known = self.backend.history(request.block_table, request.num_computed_tokens)
            assert known == request.token_ids[: request.num_computed_tokens], request
        assert self.engine.has_unfinished_requests() == bool(self.asked)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        most = sum(len(prompt) + params.max_tokens * 4 for prompt, params in self.asked.values())
        for _ in range(20 + 40 * most):
            if not self.engine.has_unfinished_requests():
                break
            self._step()
        assert not self.asked, f"unfinished: {self.asked}"
        self.engine.check_invariants()
        assert self.engine.stats().num_free_blocks == self.config.num_blocks
