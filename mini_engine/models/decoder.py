"""The decoder of every family in torch: RMSNorm, an attention block, SwiGLU, around a residual. For reading and for speed.

Source: Touvron et al. 2023 (Llama). Layout as in transformers' `LlamaForCausalLM`; families differ by `families.FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.families import family_of
from mini_engine.models.grouped_attention import GroupedAttention
from mini_engine.models.latent_attention import LatentAttention
from mini_engine.models.layout import EMBED, LM_HEAD, NORM, check_tensors, check_tokens, layer_name
from mini_engine.models.linear import Linear, is_half_exact, pack_linear
from mini_engine.models.rope import softmax_scale
from mini_engine.models.rope_torch import rope_table
from mini_engine.models.torch_weights import TorchWeights

Attend = Callable[..., torch.Tensor]
ATTENTION: dict[str, Callable[..., Any]] = {"grouped": GroupedAttention, "latent": LatentAttention}


@dataclass
class DecoderLayer:
    """One layer's weights."""

    input_norm: torch.Tensor  # [hidden]
    attention: Callable[..., torch.Tensor]  # (x[T, hidden], rope, attend) -> [T, hidden]
    post_norm: torch.Tensor  # [hidden]
    gate_up: Linear  # [2 * intermediate, hidden]
    down: Linear  # [hidden, intermediate]


class DecoderModel:
    """A decoder-only transformer. `attend` owns the cache; the model knows of no cache, batch or block, and never mixes rows."""

    def __init__(
        self, checkpoint: Checkpoint, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        check_tensors(checkpoint)
        self.spec = spec = checkpoint.spec
        self.device, self.dtype = torch.device(device), dtype
        weights = TorchWeights(checkpoint, self.device, dtype)

        # Packing holds a matrix twice for a moment: the largest ones come first, while there is nothing else.
        self.embed = weights.tensor(EMBED)
        self.lm_head = pack_linear(self.embed) if spec.tie_word_embeddings else weights.linear(LM_HEAD)
        if is_half_exact(self.embed):
            self.embed = self.embed.half()  # a lookup reads a few rows: widening those costs nothing
        block = ATTENTION[family_of(spec).attention]
        self.layers = [
            DecoderLayer(
                input_norm=weights.tensor(layer_name(i, "input_layernorm")),
                attention=block(weights, spec, i),
                post_norm=weights.tensor(layer_name(i, "post_attention_layernorm")),
                gate_up=weights.linear(layer_name(i, "mlp.gate_proj"), layer_name(i, "mlp.up_proj")),
                down=weights.linear(layer_name(i, "mlp.down_proj")),
            )
            for i in range(spec.num_hidden_layers)
        ]
        self.norm = weights.tensor(NORM)
        self.cos, self.sin = rope_table(spec, self.device, dtype)

    @property
    def softmax_scale(self) -> float:
        """What `attend` multiplies scores by."""
        return softmax_scale(self.spec)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor | Sequence[int],
        positions: torch.Tensor | Sequence[int],
        attend: Attend,
        logits_rows: torch.Tensor | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """token_ids[T], positions[T] -> logits[R, V] of the rows asked for (None: all T).

        `attend(layer, q[T, H, D], k[T, K, D], v[T, K, D]) -> [T, H, D]` stores k and v and attends; q and k arrive rotated. With
        latent attention it is `attend(layer, q[T, H, Dn + Dr], latent[T, 1, Dc + Dr], up) -> [T, H, Dv]`.
        ValueError for a token outside the vocabulary or a position outside the context (not checked on ids already on a GPU,
        where looking at them would make the host wait).
        """
        if not (isinstance(token_ids, torch.Tensor) and token_ids.is_cuda):
            check_tokens(self.spec, np.asarray(token_ids), np.asarray(positions))
        token_ids, positions = self._indices(token_ids), self._indices(positions)
        rope = self.cos[positions], self.sin[positions]

        x = F.embedding(token_ids, self.embed).to(self.dtype)  # [T, hidden]
        for layer in self.layers:
            x = x + layer.attention(self._norm(x, layer.input_norm), rope, attend)
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)

        if logits_rows is not None:
            x = x[self._indices(logits_rows)]
        return self.lm_head(self._norm(x, self.norm))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.spec.rms_norm_eps)

    def _indices(self, values: torch.Tensor | Sequence[int]) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.int64).to(self.device, non_blocking=True)
