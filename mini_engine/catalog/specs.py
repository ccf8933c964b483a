"""What a model and a GPU are, in numbers: `ModelSpec` and `GPUSpec`. `catalog` holds the tables of known ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mini_engine.arguments import amount, count, shown


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The shape of a decoder-only transformer. Field names are those of a Hugging Face `config.json`.

    ValueError names the field when a count is not an integer of at least 1, or when two fields contradict each other.
    """

    name: str = ""
    architecture: str = "LlamaForCausalLM"
    model_type: str = "llama"
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    """0 when the configuration does not say: enough to size the cache, not to run the model."""
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = field(default=None, hash=False)
    tie_word_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    attention_bias: bool = False
    """The attention projections have biases because the configuration says so; some families always have some."""
    gated_mlp: bool = True
    """The MLP has three matrices (gate, up, down) rather than two."""
    learned_positions: int = 0
    """Rows of a table of learned positions; 0 where positions are rotated."""

    quantization: str = ""
    """How the file says its weights are stored, such as 'gptq, 4 bits'; "" when it says nothing."""

    # Latent attention (MLA): one vector per token and layer instead of keys and values per head.
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    qk_nope_head_dim: int | None = None
    v_head_dim: int | None = None
    q_lora_rank: int | None = None
    rope_interleave: bool = False
    """The rotary part turns neighbouring dimensions with each other, and not dimension i with i + D/2."""
    index_head_dim: int = 0
    """Size of the extra key that sparse attention's indexer keeps; not counted as KV here."""

    # Mixture of experts.
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    n_shared_experts: int = 0
    shared_expert_intermediate_size: int = 0
    num_moe_layers: int = 0
    """Layers whose MLP is made of experts; the others are dense."""

    # Layers that differ from each other.
    layer_windows: tuple[int | None, ...] = field(default=(), repr=False)
    """One entry per attention layer: None for full attention, or how many tokens it keeps. () means all full."""
    layer_kv_shapes: tuple[tuple[int, int], ...] = ()
    """(KV heads, head size) per attention layer, where layers differ; () means that all are (num_key_value_heads,
    head_dim).
    """
    layers_without_kv: tuple[str, ...] = ()
    """The kinds of the layers that keep no K/V of their own: linear attention, SSM, shared K/V."""

    def __post_init__(self) -> None:
        for name in COUNTS:
            count(name, getattr(self, name))
        count("max_position_embeddings", self.max_position_embeddings, minimum=0)
        latent = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
        if any(getattr(self, name) is not None for name in latent):
            for name in latent:
                count(name, getattr(self, name))
            if self.q_lora_rank is not None:
                count("q_lora_rank", self.q_lora_rank)
        if self.num_experts:
            for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_moe_layers"):
                count(name, getattr(self, name))
            if self.num_experts_per_tok > self.num_experts:
                raise ValueError(
                    f"num_experts_per_tok={self.num_experts_per_tok} is more than num_experts={self.num_experts}"
                )
        count("num_moe_layers", self.num_moe_layers, minimum=0, limit=self.num_hidden_layers if self.num_experts else 0)
        for name in ("learned_positions", "index_head_dim", "n_shared_experts", "shared_expert_intermediate_size"):
            count(name, getattr(self, name), minimum=0)
        if self.q_lora_rank is not None:
            count("q_lora_rank", self.q_lora_rank)
        self._fit_layers()

    def _fit_layers(self) -> None:
        """Spell out uniform layers. A tuple of equal entries follows num_hidden_layers, so that `dataclasses.replace`
        may change it.
        """
        attending = self.num_hidden_layers - len(self.layers_without_kv)
        for name, uniform in (("layer_windows", None), ("layer_kv_shapes", (self.num_key_value_heads, self.head_dim))):
            value = tuple(getattr(self, name))
            if len(set(value)) <= 1 and not self.layers_without_kv:
                value = (value[0] if value else uniform,) * attending
            elif not value:
                value = (uniform,) * attending
            if len(value) != attending:
                raise ValueError(
                    f"{name} has {len(value)} entries for {attending} attention layers of {self.num_hidden_layers} "
                    "layers"
                )
            object.__setattr__(self, name, value)
        for layer, window in enumerate(self.layer_windows):
            if window is not None:
                count(f"layer_windows[{layer}]", window)
        for layer, (heads, head_dim) in enumerate(self.layer_kv_shapes):
            count(f"layer_kv_shapes[{layer}][0]", heads)
            count(f"layer_kv_shapes[{layer}][1]", head_dim)
        if all(shape == (self.num_key_value_heads, self.head_dim) for shape in self.layer_kv_shapes):
            object.__setattr__(self, "layer_kv_shapes", ())

    @classmethod
    def from_hf_config(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> ModelSpec:
        """Read a Hugging Face `config.json`: the file, the folder that holds it, or its contents as a dict.

        `head_dim` is taken when given, and hidden_size / num_attention_heads only when it is not. ValueError names
        what is missing.
        """
        from mini_engine.catalog.hf_config import read_config
        from mini_engine.catalog.hf_file import naming

        fields, where = read_config(source)
        with naming(where):
            return cls(**fields)

    @property
    def max_model_len(self) -> int:
        """The longest sequence of which every layer sees every token, as no cache here drops what leaves a window.

        That is `max_position_embeddings`; more where YaRN stretches a shorter original; less where a window is smaller.
        """
        return min(self._positions, *self._windows)

    @property
    def context_limit(self) -> str:
        """The field of the configuration that sets `max_model_len`."""
        return "sliding_window" if self.max_model_len < self._positions else "max_position_embeddings"

    @property
    def window_note(self) -> str:
        """Why the context ends before the positions do, and the remedy, for an error message; "" where it does not."""
        if self.context_limit != "sliding_window":
            return ""
        return (
            f" (its sliding_window of {self.max_model_len} tokens; beyond it the oldest would have to be forgotten, which is "
            "not supported: keep prompt and output within the window, or take a model without one)"
        )

    @property
    def _windows(self) -> list[int]:
        return [window for window in self.layer_windows if window is not None] or [self._positions]

    @property
    def _positions(self) -> int:
        scaling = self.rope_scaling or {}
        if "yarn" not in (scaling.get("rope_type"), scaling.get("type")):
            return self.max_position_embeddings
        original = scaling.get("original_max_position_embeddings") or 0
        return max(self.max_position_embeddings, int(original * (scaling.get("factor") or 1)))

    @property
    def is_mla(self) -> bool:
        """Whether the cache holds one latent vector per token and layer (DeepSeek-V2, V3, Kimi-K2)."""
        return self.kv_lora_rank is not None

    @property
    def latent_dim(self) -> int:
        """Elements that MLA caches per token and layer: the latent vector and the rotary key. 0 for other models."""
        return (self.kv_lora_rank or 0) + (self.qk_rope_head_dim or 0)

    @property
    def expanded_dim(self) -> int:
        """Elements of MLA's key and value per token, layer and head once decompressed. 0 for other models."""
        return (self.qk_nope_head_dim or 0) + (self.qk_rope_head_dim or 0) + (self.v_head_dim or 0)

    @property
    def num_attention_layers(self) -> int:
        """Layers that keep a KV cache."""
        return len(self.layer_windows)

    @property
    def num_windowed_layers(self) -> int:
        """Attention layers that keep a window instead of everything."""
        return sum(window is not None for window in self.layer_windows)

    @property
    def kv_shapes(self) -> tuple[tuple[int, int], ...]:
        """(KV heads, head size) of every attention layer."""
        return self.layer_kv_shapes or ((self.num_key_value_heads, self.head_dim),) * self.num_attention_layers


COUNTS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
)


@dataclass(frozen=True, kw_only=True)
class GPUSpec:
    """An accelerator, from its data sheet: bytes, bytes per second, dense FLOP/s.

    None where the part lacks it or the table does.

    Peaks are peaks: no kernel reaches all of them, and `memory_bytes` is the size on the box. `reported_memory_bytes`
    is what the driver shows.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: int
    bf16_flops: int
    fp8_flops: int | None = None
    link_bandwidth: int | None = None
    """All links of the GPU together, both directions."""
    pcie_bandwidth: int | None = None
    """Per direction."""
    reported_memory_bytes: int | None = None
    verified: str = ""
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "memory_bandwidth", "bf16_flops"):
            amount(name, getattr(self, name), minimum=1, limit=10**21)
        for name in ("fp8_flops", "link_bandwidth", "pcie_bandwidth", "reported_memory_bytes"):
            if getattr(self, name) is not None:
                amount(name, getattr(self, name), minimum=1, limit=10**21)


def model_spec(name: str, value: Any) -> ModelSpec:
    """`value` when it is a `ModelSpec`; ValueError naming the argument `name` and how to get one otherwise."""
    if not isinstance(value, ModelSpec):
        raise ValueError(
            f"{name}={shown(value)} must be a ModelSpec: get_model('llama-3-8b'), or ModelSpec.from_hf_config(path)"
        )
    return value


def gpu_spec(name: str, value: Any) -> GPUSpec:
    """`value` when it is a `GPUSpec`; ValueError naming the argument `name` and how to get one otherwise."""
    if not isinstance(value, GPUSpec):
        raise ValueError(f"{name}={shown(value)} must be a GPUSpec, such as get_gpu('h100-sxm')")
    return value
