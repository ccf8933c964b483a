"""How the next token is chosen: `SamplingParams`, what a caller asks for, and `Sampler`, which does it.

The order is vLLM's: temperature, then top-k, then top-p. Randomness is counter-based: a draw is a function of
(seed, branch index, position) and the logits, so batching, preemption or a resumed request can never change it.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from mini_engine.arguments import COUNT_LIMIT, shown

_SEED_LIMIT = 2**64


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to continue a prompt. Every field is checked: `ValueError` names the field, the value and the range.

    n:              how many continuations (branches) of one prompt
    temperature:    0 is greedy: the most likely token, the smallest id among equals
    top_k:          draw among the k most likely tokens; 0 means all
    top_p:          draw among the smallest set of most likely tokens whose probability reaches top_p
    min_tokens:     the first min_tokens tokens never end the continuation
    max_tokens:     at most this many tokens; 0 gives none
    stop:           strings that end the continuation; the text is cut before the one that is complete first
    stop_token_ids: tokens that end it, besides the model's end-of-sequence tokens
    ignore_eos:     treat the model's end-of-sequence tokens as ordinary ones
    seed:           with the same seed the same continuation; None draws a new seed for each request
    logprobs:       also report the log-probabilities of this many most likely tokens, and of the token taken
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_tokens: int = 0
    max_tokens: int = 16
    stop: str | tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, low in (("n", 1), ("top_k", 0), ("min_tokens", 0), ("max_tokens", 0)):
            self._set(name, _integer(name, getattr(self, name), low))
        self._set("temperature", _real("temperature", self.temperature, "a finite number >= 0", lambda t: t >= 0))
        self._set("top_p", _real("top_p", self.top_p, "a number in (0, 1]", lambda p: 0 < p <= 1))
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")
        stop = (self.stop,) if isinstance(self.stop, str) else _items("stop", self.stop)
        if not all(isinstance(text, str) and text for text in stop):
            raise ValueError(f"stop={shown(stop)}: must be non-empty strings")
        self._set("stop", stop)
        ids = _items("stop_token_ids", self.stop_token_ids)
        self._set("stop_token_ids", tuple(_integer("stop_token_ids", token_id, 0) for token_id in ids))
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos={shown(self.ignore_eos)}: must be True or False")
        if self.seed is not None:
            self._set("seed", _integer("seed", self.seed, 0, _SEED_LIMIT - 1))
        if self.logprobs is not None:
            self._set("logprobs", _integer("logprobs", self.logprobs, 0))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def seeded(self) -> SamplingParams:
        """These parameters with a seed: their own, or one drawn now. All branches of a request share it."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(_SEED_LIMIT))

    def all_stop_token_ids(self, eos_token_ids: Iterable[int] = ()) -> frozenset[int]:
        """The tokens that end this request: `stop_token_ids`, and the model's own unless `ignore_eos`."""
        return frozenset(self.stop_token_ids) | (frozenset() if self.ignore_eos else frozenset(eos_token_ids))


def _items(name: str, value: object) -> tuple:
    if value is None:
        return ()
    try:
        return tuple(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name}={shown(value)}: must be a sequence") from None


def _integer(name: str, value: object, low: int, high: int | None = None) -> int:
    span = f">= {low}" if high is None else f"in [{low}, {high}]"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # takes NumPy integers, refuses 3.0 and "3"
    except TypeError:
        number = low - 1
    if number > COUNT_LIMIT and high is None:
        raise ValueError(f"{name}={shown(value)}: must be at most 10**12")
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise ValueError(f"{name}={shown(value)}: must be an integer {span}")
    return number


def _real(name: str, value: object, span: str, allowed: Callable[[float], bool]) -> float:
    try:
        number = float("nan") if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not (np.isfinite(number) and allowed(number)):
        raise ValueError(f"{name}={shown(value)}: must be {span}")
    return number


class Sampler:
    """Chooses the tokens of one branch from NumPy logits[V].

    `position` counts the tokens the branch has sampled before this one: 0 for the first. The first `min_tokens`
    draws never give a stop token.
    """

    def __init__(self, params: SamplingParams, eos_token_ids: Iterable[int] = (), *, index: int = 0) -> None:
        self.params = params.seeded()
        self.seed = self.params.seed or 0
        self.index = index
        self._stop_ids = sorted(params.all_stop_token_ids(eos_token_ids))

    def is_argmax(self, position: int) -> bool:
        """True where `logits.argmax()` is all there is to do, so that the logits may stay on their device."""
        params = self.params
        masked = position < params.min_tokens and self._stop_ids
        return params.temperature == 0 and params.logprobs is None and not masked

    def sample(self, logits: np.ndarray, position: int) -> int:
        """The token at `position`. Raises ValueError when the logits hold NaN or +inf, or leave no token to take."""
        params = self.params
        scores = np.array(logits, dtype=np.float64)  # a copy: masking must not reach the caller's logits
        if position < params.min_tokens:
            scores[[token_id for token_id in self._stop_ids if token_id < len(scores)]] = -np.inf
        best = int(scores.argmax())  # NaN counts as the largest here
        check_peak(scores[best], best)
        if params.temperature == 0:
            return best

        token_ids = np.arange(len(scores))
        if 0 < params.top_k < len(scores):
            token_ids = largest(scores, params.top_k)
        with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to exp(-inf) = 0
            weights = np.exp((scores[token_ids] - scores[best]) / params.temperature)
        if params.top_p < 1:
            kept = nucleus(weights, params.top_p)
            token_ids, weights = token_ids[kept], weights[kept]
        mass = np.cumsum(weights)
        draw = uniform(self.seed, self.index, position) * mass[-1]
        # side="right": the first token whose mass exceeds the draw, never one of weight 0
        return int(token_ids[np.searchsorted(mass, draw, side="right")])

    def logprobs(self, logits: np.ndarray, token_id: int) -> dict[int, float] | None:
        """Natural log-probabilities under the model's own distribution (before temperature, masks and cuts).

        The `params.logprobs` most likely tokens, most likely first, then the token taken if it is not among them.
        """
        if self.params.logprobs is None:
            return None
        scores = np.asarray(logits, dtype=np.float64)
        peak = scores.max()
        scores = scores - (peak + np.log(np.exp(scores - peak).sum()))
        top = largest(scores, self.params.logprobs).tolist()
        return {i: float(scores[i]) for i in dict.fromkeys([*top, token_id])}


def uniform(seed: int, index: int, position: int) -> float:
    """A number in [0, 1) that depends on its three arguments only: Philox, keyed by seed and branch, at a counter."""
    key = np.array([seed, index], dtype=np.uint64)
    counter = np.array([position, 0, 0, 0], dtype=np.uint64)
    return (np.random.Philox(key=key, counter=counter).random_raw() >> 11) * 2.0**-53


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest of values[V], largest first, equal ones by index.

    A partition finds the smallest value that belongs, so only those are sorted: 0.1 ms instead of 8 ms at V = 49,152.
    """
    if count < 1:
        return np.empty(0, dtype=np.int64)
    candidates = np.arange(len(values))
    if count < len(values):
        candidates = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]


def nucleus(weights: np.ndarray, top_p: float) -> np.ndarray:
    """Indices of the smallest set of largest weights that holds at least `top_p` of the total; one at least.

    Weights below total * (1 - top_p) / V cannot be in it: all of them together hold less than 1 - top_p. So only
    the others are sorted. (Holtzman et al. 2019, The Curious Case of Neural Text Degeneration.)
    """
    total = weights.sum()
    candidates = np.flatnonzero(weights >= total * (1 - top_p) / len(weights))
    order = candidates[np.argsort(-weights[candidates], kind="stable")]
    return order[: np.searchsorted(np.cumsum(weights[order]), top_p * total) + 1]


def check_peak(value: float, token_id: int) -> None:
    """Raise ValueError unless `value`, the largest logit, is finite."""
    if np.isfinite(value):
        return
    if np.isneginf(value):
        raise ValueError("every logit is -inf: no token can be taken (min_tokens masks the stop tokens)")
    raise ValueError(f"logit {token_id} is {value}: the model's output is broken; check its weights and its dtype")
