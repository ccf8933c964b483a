"""A Llama in torch: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU. Written for reading and for speed.

Source: Touvron et al. 2023 (Llama); Ainslie et al. 2023 (grouped-query attention). Layout as in transformers' `LlamaForCausalLM`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from mini_engine.catalog import ModelSpec
from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.errors import CorruptModelError
from mini_engine.models.linear import Linear, is_half_exact, pack_linear
from mini_engine.models.llama_layout import EMBED, LM_HEAD, NORM, check_tensors, check_tokens, layer_name, not_finite

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class LlamaLayer:
    """One layer's weights. Projections that read the same input are one matrix: one large product beats three small ones."""

    input_norm: torch.Tensor  # [hidden]
    qkv: Linear  # [(H + 2K) * D, hidden]
    o: Linear  # [hidden, H * D]
    post_norm: torch.Tensor  # [hidden]
    gate_up: Linear  # [2 * intermediate, hidden]
    down: Linear  # [hidden, intermediate]


def rope_table(spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position, [positions, 1, D/2]. Angles are float32, because that is how Llamas are trained."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.int64).float() / spec.head_dim
    angles = torch.arange(spec.max_position_embeddings).float()[:, None, None] * (1.0 / spec.rope_theta**exponents)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn dimension i with dimension i + D/2: x[T, heads, D], cos and sin [T, 1, D/2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class LlamaModel:
    """Llama in torch. `attend` owns the cache; the model knows of no cache, batch or block, and never mixes rows itself."""

    def __init__(
        self, checkpoint: Checkpoint, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        check_tensors(checkpoint)
        self.spec = spec = checkpoint.spec
        self.device, self.dtype = torch.device(device), dtype

        def load(*names: str) -> torch.Tensor:
            """Read tensors into one, stacked along the rows, so that at most one of them exists twice at any time."""
            shapes = [checkpoint.shapes[name] for name in names]
            whole = torch.empty((sum(shape[0] for shape in shapes), *shapes[0][1:]), device=self.device, dtype=dtype)
            for name, part in zip(names, whole.split([shape[0] for shape in shapes])):
                part.copy_(torch.from_numpy(checkpoint.read(name)))
                if not part.isfinite().all():
                    raise CorruptModelError(not_finite(checkpoint, name, dtype))
            return whole

        # Packing holds a matrix twice for a moment: the largest ones come first, while there is nothing else.
        self.embed = load(EMBED)
        self.lm_head = pack_linear(self.embed if spec.tie_word_embeddings else load(LM_HEAD))
        if is_half_exact(self.embed):
            self.embed = self.embed.half()  # a lookup reads a few rows: widening those costs nothing
        self.layers = []
        for i in range(spec.num_hidden_layers):
            in_layer = [layer_name(i, f"self_attn.{x}_proj") for x in "qkv"]
            self.layers.append(
                LlamaLayer(
                    input_norm=load(layer_name(i, "input_layernorm")),
                    qkv=pack_linear(load(*in_layer)),
                    o=pack_linear(load(layer_name(i, "self_attn.o_proj"))),
                    post_norm=load(layer_name(i, "post_attention_layernorm")),
                    gate_up=pack_linear(load(layer_name(i, "mlp.gate_proj"), layer_name(i, "mlp.up_proj"))),
                    down=pack_linear(load(layer_name(i, "mlp.down_proj"))),
                )
            )
        self.norm = load(NORM)
        self.cos, self.sin = rope_table(spec, self.device, dtype)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor | Sequence[int],
        positions: torch.Tensor | Sequence[int],
        attend: Attend,
        logits_rows: torch.Tensor | Sequence[int] | None = None,
    ) -> torch.Tensor:
        """token_ids[T], positions[T] -> logits[R, V] of the rows asked for (None: all T).

        `attend(layer, q[T, H, D], k[T, K, D], v[T, K, D]) -> [T, H, D]` stores k and v and attends; q and k arrive rotated.
        ValueError for a token outside the vocabulary or a position outside the context (not checked on ids already on a GPU,
        where looking at them would make the host wait).
        """
        spec = self.spec
        H, K, D = spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim
        if not (isinstance(token_ids, torch.Tensor) and token_ids.is_cuda):
            check_tokens(spec, np.asarray(token_ids), np.asarray(positions))
        token_ids, positions = self._indices(token_ids), self._indices(positions)
        cos, sin = self.cos[positions], self.sin[positions]

        x = F.embedding(token_ids, self.embed).to(self.dtype)  # [T, hidden]
        for i, layer in enumerate(self.layers):
            qkv = layer.qkv(self._norm(x, layer.input_norm)).view(-1, H + 2 * K, D)
            qk, v = rotate(qkv[:, : H + K], cos, sin), qkv[:, H + K :]
            x = x + layer.o(attend(i, qk[:, :H], qk[:, H:], v).reshape(-1, H * D))
            gate, up = layer.gate_up(self._norm(x, layer.post_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)

        if logits_rows is not None:
            x = x[self._indices(logits_rows)]
        return self.lm_head(self._norm(x, self.norm))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.spec.rms_norm_eps)

    def _indices(self, values: torch.Tensor | Sequence[int]) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.int64).to(self.device, non_blocking=True)
