"""`LLM`: text in, text out."""

from __future__ import annotations

import itertools
import operator
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from numbers import Integral
from time import perf_counter
from typing import Any, cast

from tqdm import tqdm

from mini_engine.arguments import count
from mini_engine.backends.contiguous import is_torch
from mini_engine.beam_search import beam_search
from mini_engine.engine import LLMEngine
from mini_engine.engine.interrupts import interrupts_held
from mini_engine.engine_options import checked_cache, paged_engine
from mini_engine.generation import GenerationStats
from mini_engine.outputs import RequestOutput
from mini_engine.sampling import SamplingParams
from mini_engine.sequential import SequentialEngine

BACKENDS = ("torch", "numpy", "triton")
Prompt = str | Sequence[int]


class LLM:
    """A language model that continues prompts.

    model:     "smollm2-135m", "tiny-gqa", "tiny-mla", a path (see `mini_engine.models.load_model`), or what `load_model`
               returned, which brings its backend, device and dtype along
    backend:   "torch", "numpy" (float64, for reading), or "triton": torch with decode attention in Triton kernels, compiled
               on a GPU and interpreted, slowly, without one
    cache:     "paged" (many requests at once), or one request after the other: "contiguous", "none" (every step
               recomputes the whole sequence), or a cache class of your own
    attention: a causal attention function of your own (see `mini_engine.backends.contiguous.make_attend` for both)
    num_blocks, kv_cache_bytes: size of the paged cache, by one of the two; 1 GiB by default (NumPy: 64 MiB)
    kv_cache_dtype: how the paged cache keeps K/V: "auto" (the model's dtype), or "fp8" (torch) or "int8" (torch, triton)
    options:   of the paged engine: those of `EngineConfig`, and `scheduler`, `kv_manager`, `record` of `LLMEngine`; with
               backend="triton" also `decode` and `write`, kernels of your own (see `TritonBackend`)

    Raises ValueError for an unknown option or value, and what `load_model` raises.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Any = "smollm2-135m",
        backend: str = "torch",
        *,
        cache: str | type | None = None,
        attention: Callable | None = None,
        device: Any = None,
        dtype: Any = None,
        num_blocks: int | None = None,
        kv_cache_bytes: int | None = None,
        kv_cache_dtype: str | None = None,
        **options: Any,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"backend={backend!r}: must be one of {', '.join(BACKENDS)}")
        if isinstance(kv_cache_dtype, str) and kv_cache_dtype == "auto":
            kv_cache_dtype = None  # what every cache does
        sizes = {"num_blocks": num_blocks, "kv_cache_bytes": kv_cache_bytes, "kv_cache_dtype": kv_cache_dtype}
        cache = checked_cache(cache, attention, {**sizes, **options})
        if isinstance(model, str | os.PathLike):
            from mini_engine.models import load_model

            library = "torch" if backend == "triton" else backend
            if backend == "triton" and device is None:
                from mini_engine.kernels import kernel_device

                device = kernel_device()
            model = load_model(model, backend=cast(Any, library), device=device, dtype=dtype)
        elif not all(hasattr(model, part) for part in ("model", "tokenizer", "spec")):
            raise ValueError(f"model={model!r}: must be a name, a path, or what load_model returned")
        elif device is not None or dtype is not None:
            raise ValueError("device and dtype are chosen when a model is loaded: give them to load_model")
        self.model, self.tokenizer, self.spec = model.model, model.tokenizer, model.spec
        self.backend = "numpy" if not is_torch(self.model) else "triton" if backend == "triton" else "torch"
        if backend == "triton" and (self.backend != backend or cache != "paged"):
            raise ValueError("backend='triton' needs a torch model and cache='paged'")
        own_stops = () if self.tokenizer is None else self.tokenizer.eos_token_ids
        self.eos_token_ids = tuple(sorted({*self.spec.eos_token_ids, *own_stops}))
        self.last_stats = GenerationStats()  # what the latest generate, stream or chat cost
        self._request_ids = itertools.count()
        self._lock = threading.RLock()  # held for a step at a time, so that threads take turns
        self._inboxes: dict[str, list[RequestOutput]] = {}  # of the requests that somebody is waiting for
        self.engine: LLMEngine | SequentialEngine
        if cache == "paged":
            self.engine = paged_engine(
                self.model,
                self.tokenizer,
                self.eos_token_ids,
                num_blocks,
                kv_cache_bytes,
                kv_cache_dtype,
                options,
                self.backend,
            )
        else:
            self.engine = SequentialEngine(
                self.model, eos_token_ids=self.eos_token_ids, tokenizer=self.tokenizer, cache=cache, attention=attention
            )

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Continue one prompt or several, each a text or a list of token ids; one output per prompt, in order.

        sampling_params: one for all, or one per prompt; None means `SamplingParams()`. progress: show a bar on a
        terminal. A continuation that reaches the end of the model's context finishes with "length". Raises ValueError,
        before anything is generated, for a prompt that is empty, longer than the context or outside the vocabulary.
        Whatever interrupts it, Ctrl-C included, every block is free afterwards.
        """
        requests = self._requests(prompts, sampling_params)
        done: dict[str, RequestOutput] = {}
        began = perf_counter()
        bar = tqdm(total=len(requests), unit="prompt", disable=None if progress else True)
        with bar, closing(self._run(requests)) as outputs:
            for output in outputs:
                if output.finished:
                    done[output.request_id] = output
                    rate = self.last_stats.num_output_tokens / (perf_counter() - began)
                    bar.set_postfix_str(f"{rate:.1f} output tok/s", refresh=False)
                    bar.update()
        return [done[request_id] for request_id, *_ in requests]

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Generator[RequestOutput, None, None]:
        """Continue one prompt; yields everything so far after each token. Closing the iterator ends the request.

        Shown text is never taken back: what a stop string might still cut is held until it is certain.
        """
        requests = self._requests(prompt, sampling_params)
        if len(requests) != 1:
            raise ValueError(f"stream takes one prompt, found {len(requests)}: use generate for several")
        return self._run(requests)

    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], beam_width: int, max_tokens: int = 16
    ) -> list[RequestOutput]:
        """The `beam_width` most likely continuations of each prompt, best first by log-probability per token.

        ValueError for a bad prompt or width, and without the paged cache.
        """
        if not isinstance(self.engine, LLMEngine):
            raise ValueError("beam_search forks branches, which only cache='paged' can")
        width, length = count("beam_width", beam_width), count("max_tokens", max_tokens)
        requests = self._requests(prompts, SamplingParams(temperature=0.0, max_tokens=length))
        searched = [(request_id, token_ids) for request_id, token_ids, *_ in requests]
        outputs = []
        with self._lock:
            every = beam_search(self.engine, searched, width, length, self.eos_token_ids, self._deliver)
        for (request_id, token_ids, _, text), found in zip(requests, every):
            for completion in found:
                ended = completion.finish_reason == "stop"
                said = completion.token_ids[:-1] if ended else completion.token_ids
                completion.text = "" if self.tokenizer is None else self.tokenizer.decode(said)
            outputs.append(RequestOutput(request_id, text, token_ids, found, finished=True))
        return outputs

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

    def _requests(self, prompts: Any, sampling_params: Any) -> list[tuple[str, list[int], SamplingParams, str | None]]:
        """Check everything before anything is queued: (request id, token ids, params, text) of each prompt."""
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

        return [
            (f"llm-{next(self._request_ids)}", token_ids, params, prompt if isinstance(prompt, str) else None)
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
        self.engine.check_request(token_ids, params)

    def _run(
        self, requests: Sequence[tuple[str, list[int], SamplingParams, str | None]]
    ) -> Generator[RequestOutput, None, None]:
        """Queue the requests, step until they are done, and yield what each step has to tell."""
        engine, inboxes = self.engine, self._inboxes
        stats = self.last_stats = GenerationStats()
        if isinstance(engine, SequentialEngine):
            engine.stats = stats
        waiting: dict[str, list[RequestOutput]] = {}
        told: dict[str, int] = {}  # tokens of each request that were counted
        try:
            for request_id, token_ids, params, prompt in requests:
                waiting[request_id] = inboxes[request_id] = []
                with self._lock:
                    engine.add_request(request_id, token_ids, params, prompt=prompt)
            while waiting:
                with self._lock:
                    if not any(waiting.values()):
                        if not engine.has_unfinished_requests():
                            raise RuntimeError(
                                f"the last outputs of {', '.join(waiting)} went to somebody who stepped the engine"
                            )
                        for output in self._step(stats):
                            self._deliver(output)
                for request_id, inbox in list(waiting.items()):
                    while inbox:
                        output = inbox.pop(0)
                        num_tokens = sum(len(branch.token_ids) for branch in output.outputs)
                        if not isinstance(engine, SequentialEngine):
                            stats.num_output_tokens += num_tokens - told.get(request_id, 0)
                            told[request_id] = num_tokens
                        if output.finished:
                            del waiting[request_id], inboxes[request_id]
                        yield output
        finally:
            with self._lock, interrupts_held():
                for request_id in waiting:
                    engine.abort(request_id)
                    inboxes.pop(request_id, None)

    def _deliver(self, output: RequestOutput) -> None:
        """Put an output where its caller finds it: several may be under way (two streams read in turns, two threads)."""
        if output.request_id in self._inboxes:
            self._inboxes[output.request_id].append(output)

    def _step(self, stats: GenerationStats) -> list[RequestOutput]:
        """One step of the engine, added to `stats`."""
        if isinstance(self.engine, SequentialEngine):
            return self.engine.step()  # it counts by itself
        counters = self.engine.scheduler.counters
        before, began = (counters.num_prefill_tokens, counters.num_decode_tokens), perf_counter()
        outputs = self.engine.step()
        stats.add_step(
            perf_counter() - began, counters.num_prefill_tokens - before[0], counters.num_decode_tokens - before[1]
        )
        return outputs


def _prompt_list(prompts: Any) -> Sequence[Any]:
    """One prompt or several, as several."""
    prompts = prompts.tolist() if hasattr(prompts, "tolist") else prompts  # an array of token ids
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise ValueError(f"prompts are a text, a list of token ids, or a list of those, found {prompts!r}")
    one = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], Integral))
    return [prompts] if one else prompts
