"""From logits to answers: what the engine remembers of each request besides its place in the scheduler.

A request has n branches from the start, each with a sampler of its own, a stop checker and the completion so far. The
scheduler learns of them what it must: a token, and whether the branch ends with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mini_engine.backends.base import StepResult
from mini_engine.outputs import CompletionOutput, FinishReason, RequestMetrics, RequestOutput
from mini_engine.sampling import Sampler, SamplingParams
from mini_engine.scheduling import Request, SampledToken, StepPlan
from mini_engine.stopping import StopChecker


class Branch:
    """One continuation: how it is sampled, when it ends, and what it says so far."""

    def __init__(self, request: RequestState, index: int) -> None:
        self.request = request
        self.sampler = Sampler(request.params, request.eos_token_ids, index=index)
        self.completion = CompletionOutput(index, logprobs=None if request.params.logprobs is None else [])
        self.rewind([])

    def rewind(self, token_ids: Sequence[int]) -> None:
        """Start over and say `token_ids` again: for a branch forked halfway, or after a step that failed."""
        request = self.request
        detokenizer = None if request.tokenizer is None else request.tokenizer.detokenizer()
        self.checker = StopChecker(request.params, request.eos_token_ids, detokenizer, max_tokens=request.max_tokens)
        for token_id in token_ids:
            self.checker.add(token_id)
        self.completion.token_ids = list(token_ids)
        self.completion.text = self.checker.text
        if self.completion.logprobs is not None:
            del self.completion.logprobs[len(token_ids) :]

    def take(self, token_id: int, logprobs: dict[int, float] | None) -> FinishReason | None:
        """Add a sampled token; why the branch ends with it, or None."""
        reason = self.checker.add(token_id)
        self.completion.token_ids.append(token_id)
        self.completion.text = self.checker.text
        if logprobs is not None and self.completion.logprobs is not None:
            self.completion.logprobs.append(logprobs)
        return reason

    def end(self, reason: FinishReason) -> None:
        """End from outside: an abort, or a pool that is too small."""
        if self.checker.finish_reason is None:
            self.checker.finish(reason)
        self.completion.text = self.checker.text
        self.completion.finish_reason = reason


class RequestState:
    """One request as its owner sees it."""

    def __init__(
        self,
        request_id: str,
        prompt: str | None,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        max_tokens: int,
        eos_token_ids: tuple[int, ...],
        tokenizer: Any,
        arrival_time: float,
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.max_tokens = max_tokens
        self.eos_token_ids = eos_token_ids
        self.tokenizer = tokenizer
        self.num_cached_tokens = 0
        self.metrics = RequestMetrics(arrival_time)
        self.branches = [Branch(self, index) for index in range(params.n)]

    @property
    def finished(self) -> bool:
        """True when every branch has ended."""
        return all(branch.completion.finished for branch in self.branches)

    def output(self) -> RequestOutput:
        """Everything so far, as a copy."""
        outputs = [branch.completion.snapshot() for branch in self.branches]
        return RequestOutput(
            self.request_id,
            self.prompt,
            self.prompt_token_ids,
            outputs,
            self.finished,
            self.num_cached_tokens,
            self.metrics,
        )


class OutputProcessor:
    """Keeps the state of every request that is not finished, or whose last output nobody has seen yet."""

    def __init__(self) -> None:
        self.states: dict[str, RequestState] = {}
        self._unseen: dict[str, RequestState] = {}  # those that changed since their last output, in that order

    def branch(self, key: tuple[str, int]) -> Branch:
        """The branch of a key (request id, index). KeyError for one that is not here."""
        return self.states[key[0]].branches[key[1]]

    def fork(self, request_id: str, index: int, token_ids: Sequence[int]) -> int:
        """A new branch that has said `token_ids`, with the log-probabilities of branch `index`; returns its index."""
        state = self.states[request_id]
        branch = Branch(state, len(state.branches))
        branch.rewind(token_ids)
        if branch.checker.finish_reason is not None and token_ids:
            raise ValueError(f"token {token_ids[-1]} ends the branch: there is nothing to go on with")
        logprobs = state.branches[index].completion.logprobs
        branch.completion.logprobs = None if logprobs is None else list(logprobs)
        state.branches.append(branch)
        return branch.completion.index

    def sample(self, result: StepResult, requests: Sequence[Request]) -> dict[tuple[str, int], SampledToken]:
        """Sample one row of logits for every sequence in `requests` and its pending branches, and add the tokens.

        All are drawn before any is added, so an error in the logits leaves every completion as it was. Branches that
        were aborted while the backend computed are passed over.
        """
        drawn: list[tuple[tuple[str, int], int, dict[int, float] | None]] = []
        greedy: list[int] | None = None
        for row, request in enumerate(requests):
            branches, position = self.states[request.request_id].branches, request.num_output_tokens
            for index in (request.index, *range(1, request.num_pending_branches + 1)):
                sampler = branches[index].sampler
                if branches[index].completion.finished:
                    continue
                if sampler.is_argmax(position):
                    greedy = result.argmax().tolist() if greedy is None else greedy
                    drawn.append(((request.request_id, index), greedy[row], None))
                else:
                    logits = result.logits(row)
                    token_id = sampler.sample(logits, position)
                    drawn.append(((request.request_id, index), token_id, sampler.logprobs(logits, token_id)))
        return {key: SampledToken(token, self.branch(key).take(token, logprobs)) for key, token, logprobs in drawn}

    def rewind(self, requests: Iterable[Request]) -> None:
        """Bring completions back to what the scheduler knows, after a step that failed."""
        for request in requests:
            for index in (request.index, *range(1, request.num_pending_branches + 1)):
                branch = self.branch((request.request_id, index))
                if branch.checker.num_tokens != request.num_output_tokens:
                    branch.rewind(request.token_ids[request.num_prompt_tokens :])

    def commit(self, plan: StepPlan, changed: Iterable[Request], scheduled: float, now: float) -> None:
        """Note what a step changed that was planned at `scheduled` and committed at `now`: times, ends, whom to report."""
        for chunk in plan.chunks:
            metrics = self.states[chunk.request_id].metrics
            if metrics.scheduled_time is None:
                metrics.scheduled_time = scheduled
        for request in changed:
            state = self.states[request.request_id]
            if request.index == 0:
                state.num_cached_tokens = request.num_cached_tokens
            if request.key not in plan.finished:  # then it gained a token
                if state.metrics.first_token_time is None:
                    state.metrics.first_token_time = now
                if request.index == 0:
                    state.metrics.token_times.append(now)
            if request.finish_reason is not None:
                for index in (request.index, *range(1, request.num_pending_branches + 1)):
                    state.branches[index].end(request.finish_reason)
            self.changed(state, now)

    def changed(self, state: RequestState, now: float) -> None:
        """Report a request after this step, for the last time if it is finished."""
        if state.finished:
            state.metrics.finish_time = now
        self._unseen[state.request_id] = state

    def take_unseen(self) -> list[RequestOutput]:
        """The output so far of every request that changed. Those that are finished are forgotten."""
        unseen, self._unseen = self._unseen, {}
        for state in unseen.values():
            if state.finished:
                del self.states[state.request_id]
        return [state.output() for state in unseen.values()]
