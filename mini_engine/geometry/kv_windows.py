"""Layers that keep only a window of recent tokens, next to layers that keep everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mini_engine.arguments import count, shown
from mini_engine.catalog import ModelSpec, model_spec
from mini_engine.explain import explained
from mini_engine.geometry.kv_size import NOT_INCLUDED, layer_notes
from mini_engine.units import dtype_bytes, format_bytes

LOWER_BOUND = (
    "this counts live tokens only: engines that unify page sizes over hybrid layers may reserve full-length pages "
    "for windowed layers too; "
    "layers without attention (SSM, linear)"
)


@explained(f"{LOWER_BOUND}; {NOT_INCLUDED}")
def kv_bytes_hybrid(cfg: ModelSpec, windows: Sequence[int | None], S: int, kv_dtype: str = "bf16") -> int:
    """Bytes of one sequence of S tokens when layers with a window keep only min(S, window) of them.

    `windows` has one entry per attention layer (`cfg.layer_windows`), None for one that keeps all S. A window w keeps
    the last w tokens, the newest included. Formula F4.
    """
    cfg, S = model_spec("cfg", cfg), count("S", S, minimum=0)
    per_element = dtype_bytes("kv_dtype", kv_dtype)
    windows = _checked(cfg, windows)
    return sum(
        elems * per_element * (S if window is None else min(S, window))
        for elems, window in zip(_elems_by_layer(cfg), windows, strict=True)
    )


@kv_bytes_hybrid.working
def _(size: int, cfg: ModelSpec, windows: Sequence[int | None], S: int, kv_dtype: str) -> Iterator[str]:
    per_element = dtype_bytes("kv_dtype", kv_dtype)
    yield "the sum over attention layers of elements per token × bytes per element × tokens kept"
    layers = list(zip(_elems_by_layer(cfg), windows, strict=True))
    for elems, window in dict.fromkeys(layers):
        kept = S if window is None else min(S, window)
        kind = "full" if window is None else f"window of {window:,}"
        number = layers.count((elems, window))
        yield f"{number} layers, {kind}: {number} × {elems:,} × {per_element} × {kept:,} = {number * elems * per_element * kept:,} B"
    naive = sum(elems for elems, _ in layers) * per_element * S
    yield f"= {format_bytes(size)}"
    yield f"with every layer full: {format_bytes(naive)}"
    yield from (note for note in layer_notes(cfg) if "window" not in note)


def _elems_by_layer(cfg: ModelSpec) -> list[int]:
    if cfg.is_mla:
        return [cfg.latent_dim] * cfg.num_attention_layers
    return [2 * heads * head_dim for heads, head_dim in cfg.kv_shapes]


def _checked(cfg: ModelSpec, windows: Sequence[int | None]) -> list[int | None]:
    if isinstance(windows, str | bytes) or not isinstance(windows, Sequence):
        raise ValueError(f"windows={shown(windows)} must list one entry (None or an integer) per attention layer")
    if len(windows) != cfg.num_attention_layers:
        raise ValueError(
            f"windows has {len(windows)} entries, {cfg.name or 'the model'} has {cfg.num_attention_layers} "
            "attention layers"
        )
    return [None if window is None else count(f"windows[{layer}]", window) for layer, window in enumerate(windows)]
