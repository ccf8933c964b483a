"""Latent attention (MLA) of one sequence in NumPy: which of the two forms to use, and where a learner's own goes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mini_engine.attention import mla_absorbed, mla_expanded


def latent_attention(
    q: np.ndarray, latent: np.ndarray, up: Any, scale: float, offset: int = 0, form: Callable | None = None
) -> np.ndarray:
    """q[T, H, Dn + Dr], latent[S, Dc + Dr] as cached -> [T, H, Dv], by the two matrices of `up`, w_uk and w_uv.

    form: a function with the signature of `mla_absorbed`; None means expanded for several queries, absorbed for one.
    """
    form = form or (mla_absorbed if len(q) == 1 else mla_expanded)
    _, Dn, Dc = up.w_uk.shape
    return form(q[..., :Dn], q[..., Dn:], latent[:, :Dc], latent[:, Dc:], up.w_uk, up.w_uv, scale, offset)
