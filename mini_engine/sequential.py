"""`SequentialEngine`: one request after the other, behind the same face as `LLMEngine`.

What an engine was before continuous batching, kept to compare with: for a model without a cache, with a contiguous one,
or with a cache and an attention of your own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from mini_engine.generation import GenerationStats, check_request, generate_tokens
from mini_engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from mini_engine.sampling import SamplingParams

MAX_BRANCHES = 256


class SequentialEngine:
    """Serves requests in the order they came; each step computes one token of the oldest. cache, attention: `make_attend`."""

    def __init__(
        self,
        model: Any,
        *,
        eos_token_ids: tuple[int, ...],
        tokenizer: Any = None,
        cache: str | type = "contiguous",
        attention: Callable | None = None,
    ) -> None:
        self.model, self.tokenizer, self.eos_token_ids = model, tokenizer, eos_token_ids
        self.cache, self.attention = cache, attention
        self.stats = GenerationStats()  # of the requests added from now on; set a new one to count afresh
        self._queue: deque[tuple[RequestOutput, Iterator[RequestOutput]]] = deque()
        self._ended: list[RequestOutput] = []  # aborted ones whose last output nobody has seen

    def add_request(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        sampling_params: SamplingParams | None = None,
        *,
        prompt: str | None = None,
    ) -> None:
        """Queue a request. ValueError, and nothing changed, for one that the model cannot take or whose id is in use."""
        params = (SamplingParams() if sampling_params is None else sampling_params).seeded()
        self.check_request(prompt_token_ids, params)
        if any(output.request_id == request_id for output, _ in self._queue):
            raise ValueError(f"request id {request_id!r} is in use: choose another, or wait for its last output")
        output = RequestOutput(
            request_id=request_id,
            prompt=prompt,
            prompt_token_ids=list(prompt_token_ids),
            outputs=[CompletionOutput(index) for index in range(params.n)],
            metrics=RequestMetrics(arrival_time=perf_counter()),
        )
        self._queue.append((output, self._run(output, params, self.stats)))

    def check_request(self, prompt_token_ids: Sequence[int], sampling_params: SamplingParams) -> None:
        """ValueError for a request that the model cannot take, or one of more branches than anybody waits for."""
        if sampling_params.n > MAX_BRANCHES:
            raise ValueError(f"n={sampling_params.n}: at most {MAX_BRANCHES} branches, for they run one after another")
        check_request(prompt_token_ids, sampling_params, self.model.spec)

    def has_unfinished_requests(self) -> bool:
        """True while somebody waits, or an ended one was not handed out yet."""
        return bool(self._queue or self._ended)

    def step(self) -> list[RequestOutput]:
        """Compute one token; what its request has said so far. [] when there is nothing to do."""
        if self._ended:
            ended, self._ended = self._ended, []
            return ended
        if not self._queue:
            return []
        output, run = self._queue[0]
        try:
            next(run)
        except BaseException:
            self._queue.popleft()  # a generator that raised cannot go on; the others can
            raise
        if output.finished:
            self._queue.popleft()
        return [replace(output, outputs=[branch.snapshot() for branch in output.outputs])]

    def abort(self, request_id: str) -> bool:
        """End a request; the next step() returns its output. False when there is none of that id."""
        for entry in self._queue:
            output = entry[0]
            if output.request_id == request_id and not output.finished:
                for branch in output.outputs:
                    branch.finish_reason = branch.finish_reason or "abort"
                output.finished = True
                self._queue.remove(entry)
                self._ended.append(output)
                return True
        return False

    def _run(self, output: RequestOutput, params: SamplingParams, stats: GenerationStats) -> Iterator[RequestOutput]:
        """Run the branches one after another; yields the same, growing output after each token."""
        metrics = output.metrics
        assert metrics is not None
        metrics.scheduled_time = perf_counter()
        for index in range(params.n):
            for completion in generate_tokens(
                self.model,
                output.prompt_token_ids,
                params,
                eos_token_ids=self.eos_token_ids,
                detokenizer=None if self.tokenizer is None else self.tokenizer.detokenizer(),
                index=index,
                cache=self.cache,
                attention=self.attention,
                stats=stats,
            ):
                now = perf_counter()
                output.outputs[index] = completion
                if index == 0 and completion.token_ids:
                    metrics.token_times.append(now)
                    metrics.first_token_time = metrics.token_times[0]
                if completion.finished and index == params.n - 1:
                    metrics.finish_time = now
                    output.finished = True
                yield output
