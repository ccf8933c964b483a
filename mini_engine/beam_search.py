"""Beam search over the engine's own fork and abort: beams share every block of their common past.

At each step every live beam offers its most likely next tokens, and the `width` best of all offers live on. A beam that has
several heirs is forked, one that has none is aborted, and a fork copies nothing until two beams write into one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mini_engine.engine import LLMEngine
from mini_engine.outputs import CompletionOutput, FinishReason, RequestOutput
from mini_engine.sampling import SamplingParams


@dataclass
class Beam:
    """A live continuation, and the branch of the engine that computes what comes after it."""

    token_ids: list[int]
    logprob: float  # of all its tokens, summed
    key: tuple[str, int]  # request id and branch
    base: int = 0  # how many of its tokens that request was given as prompt


@dataclass(frozen=True)
class Heir:
    """One token more on a beam."""

    logprob: float
    beam: Beam
    token_id: int

    @property
    def token_ids(self) -> list[int]:
        """The beam's tokens and the one that makes the heir."""
        return [*self.beam.token_ids, self.token_id]


@dataclass
class BeamSearch:
    """The search behind one prompt. `step` looks at what the engine has computed; `done` holds the ended beams."""

    engine: LLMEngine
    request_id: str
    prompt_token_ids: list[int]
    width: int
    max_tokens: int
    eos_token_ids: tuple[int, ...] = ()
    live: list[Beam] = field(default_factory=list)
    done: list[CompletionOutput] = field(default_factory=list)
    seen: dict[tuple[str, int], CompletionOutput] = field(default_factory=dict)
    num_restarts: int = 0
    request_ids: set[str] = field(default_factory=set)  # all that were ever queued for this search

    def start(self) -> None:
        """Queue the prompt. ValueError, and nothing changed, for a search that could never run."""
        most = self.engine.config.max_num_seqs
        if not 1 <= self.width <= most:
            raise ValueError(
                f"beam_width={self.width}: must be 1 to {most}, max_num_seqs, since each beam takes a seat"
            )
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens}: must be at least 1")
        self.live = [Beam([], 0.0, (self.request_id, 0))]
        self._queue(self.request_id, self.prompt_token_ids, self.max_tokens)

    def _queue(self, request_id: str, prompt_token_ids: list[int], max_tokens: int) -> None:
        self.request_ids.add(request_id)  # before it is queued, so that an interrupt right after finds it
        try:
            self.engine.add_request(request_id, prompt_token_ids, self._params(max_tokens))
        except ValueError:
            self.request_ids.discard(request_id)
            raise

    def _params(self, max_tokens: int) -> SamplingParams:
        # Twice the width, so that `width` offers are left even if all the best ones end.
        return SamplingParams(temperature=0.0, max_tokens=max_tokens, logprobs=2 * self.width, ignore_eos=True)

    def step(self) -> None:
        """Choose the next beams as soon as the engine has the offers of all."""
        while self.live and all(self._offers(beam) is not None for beam in self.live):
            self._choose()

    def _offers(self, beam: Beam) -> dict[int, float] | None:
        """{token: log-probability} after a beam; {} if the engine ended it for want of blocks, None if not computed yet."""
        completion = self.seen.get(beam.key)
        at = len(beam.token_ids) - beam.base
        if completion is None or completion.logprobs is None:
            return None
        if at < len(completion.logprobs):
            return completion.logprobs[at]
        return {} if completion.finished else None

    def _choose(self) -> None:
        offers = [
            Heir(beam.logprob + logprob, beam, token_id)
            for beam in self.live
            for token_id, logprob in (self._offers(beam) or {}).items()
        ]
        for beam in self.live:
            if not self._offers(beam):
                self._end(beam.token_ids, beam.logprob, self.seen[beam.key].finish_reason or "capacity")
        offers.sort(key=lambda heir: -heir.logprob)
        heirs: list[Heir] = []
        for heir in offers[: 2 * self.width]:
            if heir.token_id in self.eos_token_ids:
                self._end(heir.token_ids, heir.logprob, "stop")
            elif len(heirs) < self.width:
                heirs.append(heir)
        if heirs and len(heirs[0].token_ids) == self.max_tokens:
            for heir in heirs:
                self._end(heir.token_ids, heir.logprob, "length")
            heirs = []
        self._succeed(heirs)

    def _end(self, token_ids: list[int], logprob: float, reason: FinishReason) -> None:
        self.done.append(CompletionOutput(0, "", list(token_ids), reason, cumulative_logprob=logprob))

    def _succeed(self, heirs: list[Heir]) -> None:
        """Let the branches follow the heirs: keep, fork, abort. Aborts come last, for a fork needs its source alive."""
        parents, kept = self.live, set()
        self.live = []
        for heir in heirs:
            beam = heir.beam
            own = self.seen[beam.key].token_ids[len(beam.token_ids) - beam.base]
            if heir.token_id == own:
                kept.add(beam.key)
                self.live.append(Beam(heir.token_ids, heir.logprob, beam.key, beam.base))
            elif (fork := self._fork(heir)) is not None:
                self.live.append(fork)
        for beam in parents:
            if beam.key not in kept:
                self.engine.abort(*beam.key)
                del self.seen[beam.key]

    def _fork(self, heir: Heir) -> Beam | None:
        """A branch that goes on with another last token than its source has sampled; None if the pool is too small for it."""
        beam, completion = heir.beam, self.seen[heir.beam.key]
        if not completion.finished and len(completion.token_ids) == len(heir.token_ids) - beam.base:
            index = self.engine.fork(*beam.key, last_token_id=heir.token_id)
            return Beam(heir.token_ids, heir.logprob, (beam.key[0], index), beam.base)
        # The source went on while another beam waited for blocks: start again from the tokens; the cache knows most.
        self.num_restarts += 1
        request_id = f"{self.request_id}/{self.num_restarts}"
        prompt = [*self.prompt_token_ids, *heir.token_ids]
        try:
            self._queue(request_id, prompt, self.max_tokens - len(heir.token_ids))
        except ValueError:
            self._end(heir.token_ids, heir.logprob, "capacity")
            return None
        return Beam(heir.token_ids, heir.logprob, (request_id, 0), len(heir.token_ids))

    def abort(self) -> None:
        """Give up: free every block."""
        for request_id in self.request_ids:
            self.engine.abort(request_id)
        self.live = []

    def best(self) -> list[CompletionOutput]:
        """The `width` best ended beams by log-probability per token, best first."""
        ranked = sorted(self.done, key=lambda c: -(c.cumulative_logprob or 0.0) / max(1, len(c.token_ids)))
        for index, completion in enumerate(ranked[: self.width]):
            completion.index = index
        return ranked[: self.width]


def beam_search(
    engine: LLMEngine,
    requests: Sequence[tuple[str, list[int]]],
    width: int,
    max_tokens: int,
    eos_token_ids: tuple[int, ...] = (),
    deliver: Callable[[RequestOutput], object] = lambda output: None,
) -> list[list[CompletionOutput]]:
    """Search for all (request id, prompt) at once; for each the `width` best continuations, best first.

    A beam ends at an end-of-sequence token or after `max_tokens`. Texts are left empty. Outputs of requests that are not
    part of a search go to `deliver`. ValueError, and nothing changed,
    for a request that could never run. Source: Graves 2012 and, for sharing, Kwon et al. 2023, section 4.4.
    """
    searches = [BeamSearch(engine, name, ids, width, max_tokens, eos_token_ids) for name, ids in requests]
    try:
        for search in searches:
            search.start()
        while any(search.live for search in searches):
            outputs = {output.request_id: output for output in engine.step()}
            for request_id in outputs.keys() - {name for search in searches for name in search.request_ids}:
                deliver(outputs[request_id])
            for search in searches:
                for request_id in search.request_ids & outputs.keys():
                    for completion in outputs[request_id].outputs:
                        search.seen[request_id, completion.index] = completion
                search.step()
    finally:
        for search in searches:
            search.abort()
    return [search.best() for search in searches]
