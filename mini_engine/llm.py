"""`LLM`: text in, text out."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from numbers import Integral
from time import perf_counter
from typing import Any, cast

from tqdm import tqdm

from mini_engine.backends.contiguous import CACHES, is_torch
from mini_engine.generation import GenerationStats, check_request, generate_tokens
from mini_engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from mini_engine.sampling import SamplingParams

BACKENDS = ("torch", "numpy")
Prompt = str | Sequence[int]


class LLM:
    """A language model that continues prompts.

    model:     "smollm2-135m", "tiny-gqa", a path (see `mini_engine.models.load_model`), or what `load_model` returned,
               which brings its backend, device and dtype along
    backend:   "torch", or "numpy" (float64, for reading)
    cache:     "contiguous", "none" (every step recomputes the whole sequence), or a cache class of your own
    attention: a causal attention function of your own (see `mini_engine.backends.contiguous.make_attend` for both)

    Raises ValueError for an unknown option and what `load_model` raises.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Any = "smollm2-135m",
        backend: str = "torch",
        *,
        cache: str | type = "contiguous",
        attention: Callable | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"backend={backend!r}: must be one of {', '.join(BACKENDS)}")
        if cache not in CACHES and not callable(cache):
            raise ValueError(f"cache={cache!r}: must be one of {', '.join(CACHES)}, or a class of your own")
        if attention is not None and not callable(attention):
            raise ValueError(f"attention={attention!r}: must be a function attention(q, k, v, scale, offset)")
        if isinstance(model, str | os.PathLike):
            from mini_engine.models import load_model

            model = load_model(model, backend=cast(Any, backend), device=device, dtype=dtype)
        elif device is not None or dtype is not None:
            raise ValueError("device and dtype are chosen when a model is loaded: give them to load_model")
        self.model, self.tokenizer, self.spec = model.model, model.tokenizer, model.spec
        self.backend = "torch" if is_torch(self.model) else "numpy"
        self.cache, self.attention = cache, attention
        own_stops = () if self.tokenizer is None else self.tokenizer.eos_token_ids
        self.eos_token_ids = tuple(sorted({*self.spec.eos_token_ids, *own_stops}))
        self.last_stats = GenerationStats()  # what the latest generate, stream or chat cost
        self._request_ids = count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Continue one prompt or several, each a text or a list of token ids; one output per prompt, in order.

        sampling_params: one for all, or one per prompt; None means `SamplingParams()`. progress: show a bar on a
        terminal. A continuation that reaches the end of the model's context finishes with "length". Raises ValueError, before anything is generated, for a prompt that is empty, longer than the context
        or outside the vocabulary.
        """
        requests = self._requests(prompts, sampling_params)
        with tqdm(requests, unit="prompt", disable=None if progress else True) as bar:
            for output, params in bar:
                for _ in self._run(output, params, self.last_stats):
                    pass
                bar.set_postfix_str(f"{self.last_stats.output_tokens_per_second:.1f} output tok/s")
        return [output for output, _ in requests]

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[RequestOutput]:
        """Continue one prompt; yields everything so far after each token, and the branches of n > 1 one after another.

        Shown text is never taken back: what a stop string might still cut is held until it is certain.
        """
        requests = self._requests(prompt, sampling_params)
        if len(requests) != 1:
            raise ValueError(f"stream takes one prompt, found {len(requests)}: use generate for several")
        return (
            replace(output, outputs=[branch.snapshot() for branch in output.outputs])
            for output in self._run(*requests[0], self.last_stats)
        )

    def chat(
        self, messages: Sequence[dict[str, str]], sampling_params: SamplingParams | None = None
    ) -> list[RequestOutput]:
        """Answer a conversation, [{"role": "user", "content": "..."}, ...], through the model's chat template."""
        return self.generate([self.chat_token_ids(messages)], sampling_params)

    def chat_token_ids(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The prompt for a conversation. Raises ValueError when the model has no chat template."""
        if self.tokenizer is None:
            raise ValueError("chat needs a tokenizer, and this model has none")
        text = self.tokenizer.apply_chat_template(messages)
        return self.tokenizer.encode(text, add_special_tokens=False)  # the template wrote its own

    def _requests(self, prompts: Any, sampling_params: Any) -> list[tuple[RequestOutput, SamplingParams]]:
        """Check everything, then make the requests, so that a bad prompt leaves nothing half done."""
        prompts = _prompt_list(prompts)
        every = SamplingParams() if sampling_params is None else sampling_params
        every = list(every) if isinstance(every, Sequence) else [every] * len(prompts)
        if len(every) != len(prompts):
            raise ValueError(f"{len(every)} sampling_params for {len(prompts)} prompts: give one for all, or one each")
        encoded = []
        for number, (prompt, params) in enumerate(zip(prompts, every)):
            try:
                encoded.append(self._encode(prompt))
                self._check(encoded[-1], params)
            except ValueError as error:
                raise ValueError(f"prompt {number}: {error}" if len(prompts) > 1 else str(error)) from None

        self.last_stats = GenerationStats()
        return [
            (self._new_output(prompt, token_ids, params.n), params.seeded())
            for prompt, token_ids, params in zip(prompts, encoded, every)
        ]

    def _encode(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError("a text prompt needs a tokenizer, and this model has none: give token ids")
            return self.tokenizer.encode(prompt)
        try:
            if not isinstance(prompt, bytes):
                return [operator.index(token_id) for token_id in prompt]
        except TypeError:
            pass
        raise ValueError(f"a prompt is a text or a list of integer token ids, found {prompt!r}")

    def _check(self, token_ids: list[int], params: Any) -> None:
        if not isinstance(params, SamplingParams):
            raise ValueError(f"sampling_params are SamplingParams, found {params!r}")
        if params.stop and self.tokenizer is None:
            raise ValueError(f"stop={params.stop!r}: stop strings need a tokenizer; use stop_token_ids without one")
        check_request(token_ids, params, self.spec)

    def _new_output(self, prompt: Prompt, token_ids: list[int], n: int) -> RequestOutput:
        return RequestOutput(
            request_id=str(next(self._request_ids)),
            prompt=prompt if isinstance(prompt, str) else None,
            prompt_token_ids=token_ids,
            outputs=[CompletionOutput(index) for index in range(n)],
            metrics=RequestMetrics(arrival_time=perf_counter()),
        )

    def _run(self, output: RequestOutput, params: SamplingParams, stats: GenerationStats) -> Iterator[RequestOutput]:
        """Run a request's branches one after another; yields the same, growing output after each token."""
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


def _prompt_list(prompts: Any) -> Sequence[Any]:
    """One prompt or several, as several."""
    prompts = prompts.tolist() if hasattr(prompts, "tolist") else prompts  # an array of token ids
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise ValueError(f"prompts are a text, a list of token ids, or a list of those, found {prompts!r}")
    one = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], Integral))
    return [prompts] if one else prompts
