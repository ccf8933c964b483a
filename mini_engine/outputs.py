"""What the engine answers: one `RequestOutput` per request, one `CompletionOutput` per branch in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort", "capacity"]


@dataclass(slots=True)
class CompletionOutput:
    """One continuation of a prompt, so far. A stop token is in `token_ids` and not in `text`.

    finish_reason: "stop" (a stop token or string), "length" (max_tokens or the context is used up), "abort",
    "capacity" (the cache is too small for this request alone); None while it runs.
    logprobs: for each token, {token id: natural log-probability}, when `SamplingParams.logprobs` asked for it.
    cumulative_logprob: of all tokens together, after a beam search.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    logprobs: list[dict[int, float]] | None = None
    cumulative_logprob: float | None = None

    @property
    def finished(self) -> bool:
        """True once there is a reason why it ended."""
        return self.finish_reason is not None

    def snapshot(self) -> CompletionOutput:
        """A copy that later tokens do not change."""
        logprobs = None if self.logprobs is None else list(self.logprobs)
        return CompletionOutput(self.index, self.text, list(self.token_ids), self.finish_reason, logprobs)


@dataclass(slots=True)
class RequestMetrics:
    """When things happened to a request: seconds on the `time.perf_counter` clock, None until they happen.

    scheduled_time ends its time in the queue. token_times are those of branch 0, one per token: their differences are
    the inter-token latencies.
    """

    arrival_time: float
    scheduled_time: float | None = None
    first_token_time: float | None = None
    finish_time: float | None = None
    token_times: list[float] = field(default_factory=list)


@dataclass(slots=True)
class RequestOutput:
    """A request and everything generated for it so far. `prompt` is None when token ids were given.

    num_cached_tokens: prompt tokens whose K/V came from the prefix cache instead of being computed.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
