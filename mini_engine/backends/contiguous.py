"""One sequence's keys and values in one piece of memory, reserved in full before the first token: the world before paging.

A model calls `attend(layer, q, k, v)`, or with latent attention `attend(layer, q, latent, up)`; `make_attend` builds it from a
cache and an attention function, the engine's or a learner's own. Shapes: T new tokens, S tokens so far, H query heads, K
key/value heads, D head size; a latent is one head of size Dc + Dr.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from mini_engine.attention import causal_attention
from mini_engine.backends.kv_arrays import kv_arrays
from mini_engine.backends.numpy_latent import latent_attention
from mini_engine.catalog import ModelSpec

CACHES = ("contiguous", "none")


class CacheFullError(MemoryError):
    """More tokens than the cache was made for."""


class ContiguousKVCache:
    """The cache of one sequence, [layers, capacity, K, D] for keys and as much for values, or one such array of latents.

    float64 NumPy arrays, or what `empty(shape)` makes.
    """

    def __init__(self, spec: ModelSpec, capacity: int, *, empty: Callable[[tuple[int, ...]], Any] = np.empty) -> None:
        self.capacity = capacity
        self._arrays = [empty((spec.num_hidden_layers, capacity, *shape)) for shape in kv_arrays(spec).values()]
        self._lengths = [0] * spec.num_hidden_layers

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values every layer has."""
        return min(self._lengths)

    @property
    def nbytes(self) -> int:
        """Bytes reserved, used or not."""
        return sum(array.nbytes for array in self._arrays)

    def append(self, layer: int, *new: Any) -> tuple[Any, ...]:
        """Store k[T, K, D] and v[T, K, D], or a latent; returns views of all that the layer has, [S, K, D] each.

        Raises CacheFullError when they do not fit and ValueError for other shapes, and then stores nothing.
        """
        start = self._lengths[layer]
        end = start + len(new[0])
        if end > self.capacity:
            raise CacheFullError(
                f"the cache holds {self.capacity} tokens, {start} of them in use: {len(new[0])} more do not fit; "
                "make it with a larger capacity"
            )
        if any(tuple(x.shape) != (len(new[0]), *array.shape[2:]) for array, x in zip(self._arrays, new, strict=True)):
            found = ", ".join(str(tuple(x.shape)) for x in new)
            raise ValueError(f"every array must have shape {(len(new[0]), *self._arrays[0].shape[2:])}, found {found}")
        for array, values in zip(self._arrays, new):
            array[layer, start:end] = values
        self._lengths[layer] = end
        return tuple(array[layer, :end] for array in self._arrays)


class NoCache:
    """Keeps nothing: every step hands in the whole sequence and gets it back."""

    num_tokens = 0
    nbytes = 0

    def append(self, layer: int, *new: Any) -> tuple[Any, ...]:
        """What is new is all there is."""
        return new


def torch_causal_attention(q: Any, k: Any, v: Any, scale: float, offset: int = 0) -> Any:
    """`mini_engine.attention.causal_attention` in torch: q[T, H, D], k[S, K, D], v[S, K, D] -> [T, H, D], S = offset + T."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    (T, H, D), K = q.shape, k.shape[1]
    k, v = k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    if T == 1:
        # All H // K query heads of a group read one key/value head: as the rows of one query they read it once.
        return sdpa(q.reshape(1, K, H // K, D), k, v, scale=scale).reshape(1, H, D)
    q = q.transpose(0, 1)[None]
    if offset == 0:
        return sdpa(q, k, v, is_causal=True, scale=scale, enable_gqa=True)[0].transpose(0, 1)
    mask = torch.ones(T, offset + T, dtype=torch.bool, device=q.device).tril(offset)
    return sdpa(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)[0].transpose(0, 1)


def is_torch(model: Any) -> bool:
    """True for a model whose arrays are torch tensors: only those have a device."""
    return hasattr(model, "device")


def make_attend(
    model: Any, capacity: int, cache: str | type = "contiguous", attention: Callable | None = None
) -> Callable[..., Any]:
    """The `attend` of one sequence of at most `capacity` cached tokens.

    cache: "contiguous", "none", or a class of your own: `cache(num_layers, capacity, num_kv_heads, head_dim)` with
    `append(layer, k, v)` as above. attention: a function of your own, `attention(q, k, v, scale, offset)` as
    `mini_engine.attention.causal_attention`, or for a model with latent attention one with the arguments of
    `mini_engine.attention.mla_absorbed`. Your own parts get and give NumPy arrays, whatever the model runs on; a cache of
    your own gets a latent, which has no values beside it, as k and as v.
    """
    spec = model.spec
    shapes = kv_arrays(spec)
    own = attention is not None or not isinstance(cache, str)
    on_torch = is_torch(model) and not own
    store: Any
    if cache == "none":
        store = NoCache()
    elif cache == "contiguous":
        store = ContiguousKVCache(spec, capacity, empty=_empty_like(model, own))
    elif callable(cache):
        store = cache(spec.num_hidden_layers, capacity, *next(iter(shapes.values())))
    else:
        raise ValueError(f"cache={cache!r}: must be one of {', '.join(CACHES)}, or a class of your own")
    scale = model.softmax_scale
    append = store.append if isinstance(cache, str) else _own_append(store, *next(iter(shapes.values())))

    def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
        keys, values = append(layer, k, v)
        compute = attention or (torch_causal_attention if on_torch else causal_attention)
        return compute(q, keys, values, scale, len(keys) - len(q))

    def attend_latent(layer: int, q: Any, latent: Any, up: Any) -> Any:
        latents = append(layer, latent)[0][:, 0]  # [S, Dc + Dr]: the one head
        offset = len(latents) - len(q)
        if on_torch:
            from mini_engine.backends.torch_latent import latent_attention as in_torch

            return in_torch(q, latents, up, scale, offset)
        return latent_attention(q, latents, up, scale, offset, attention)

    chosen = attend_latent if spec.is_mla else attend
    return _with_numpy(chosen, spec.v_head_dim or spec.head_dim) if own else chosen


def _own_append(store: Any, heads: int, size: int) -> Callable[..., Any]:
    """A learner's `append`, and a check of what it returns. A latent goes in as k and as v."""

    def append(layer: int, k: Any, v: Any = None) -> Any:
        found = store.append(layer, k, k if v is None else v)
        each = found if isinstance(found, tuple | list) else (found,)
        given = [getattr(x, "shape", type(x).__name__) for x in each]
        if len(given) != 2 or given[0] != given[1] or given[0][1:] != (heads, size):
            raise ValueError(
                f"append of {type(store).__name__} gave {', '.join(map(str, given))} in layer {layer}: must be two arrays, "
                f"the keys and the values that the layer has, [S, {heads}, {size}] each"
            )
        return found

    return append


def _empty_like(model: Any, own: bool) -> Callable[[tuple[int, ...]], Any]:
    """How to make arrays that hold the model's keys and values."""
    if not is_torch(model):
        return partial(np.empty, dtype=model.dtype)
    if own:
        return partial(np.empty, dtype=np.float32)
    import torch

    return partial(torch.empty, dtype=model.dtype, device=model.device)


def _with_numpy(attend: Callable, value_dim: int) -> Callable[..., Any]:
    """Hand a learner's own parts NumPy arrays, and check the shape of what comes back."""

    def checked(layer: int, q: Any, *new: Any) -> Any:
        out = np.asarray(attend(layer, *(to_numpy(x) for x in (q, *new))))
        expected = (*q.shape[:2], value_dim)
        if out.shape != expected:
            raise ValueError(f"attention gave shape {out.shape} in layer {layer}: must be {expected}")
        if isinstance(q, np.ndarray):
            return out
        import torch

        return torch.as_tensor(out).to(q)

    return checked


def to_numpy(x: Any) -> Any:
    """A tensor, or the two matrices of an up-projection, as NumPy arrays."""
    if hasattr(x, "w_uk"):
        return SimpleNamespace(w_uk=to_numpy(x.w_uk), w_uv=to_numpy(x.w_uv))
    return x if isinstance(x, np.ndarray) else x.float().cpu().numpy()
