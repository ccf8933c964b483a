"""How many parameters a model has, how many a step reads, and what they weigh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction

from mini_engine.arguments import count
from mini_engine.catalog import ModelSpec, model_spec
from mini_engine.explain import explained
from mini_engine.units import dtype_bytes, format_bytes

NOT_COUNTED = (
    "biases, norms beyond two a layer and the last one, attention sinks, multi-token-prediction layers, vision towers"
)


@dataclass(frozen=True)
class ParamBreakdown:
    """Parameters by place. They sum to the total."""

    embedding: int
    positions: int
    attention: int
    mlp: int
    experts: int
    router: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(getattr(self, part.name) for part in fields(self))


@explained(NOT_COUNTED)
def param_breakdown(cfg: ModelSpec) -> ParamBreakdown:
    """Parameters of each part of the model. Formula F7, extended to two-matrix MLPs, MLA and mixtures of experts.

    Raises ValueError for models with layers whose weights the configuration's attention and MLP fields do not
    describe (SSM, linear attention).
    """
    return _counted(cfg, model_spec("cfg", cfg).num_experts)


def _counted(cfg: ModelSpec, experts: int) -> ParamBreakdown:
    """The count with `experts` routed experts in each expert layer."""
    if cfg.layers_without_kv:
        kinds = ", ".join(sorted(set(cfg.layers_without_kv)))
        raise ValueError(
            f"layers_without_kv: the weights of {kinds} layers cannot be counted; give the number of parameters"
        )
    h, layers, moe_layers = cfg.hidden_size, cfg.num_hidden_layers, cfg.num_moe_layers
    matrices = 3 if cfg.gated_mlp else 2
    width = experts * cfg.moe_intermediate_size + cfg.n_shared_experts * cfg.shared_expert_intermediate_size
    return ParamBreakdown(
        embedding=cfg.vocab_size * h,
        positions=cfg.learned_positions * h,
        attention=_attention(cfg),
        mlp=(layers - moe_layers) * matrices * h * cfg.intermediate_size,
        experts=moe_layers * matrices * h * width,
        router=moe_layers * h * cfg.num_experts,
        norms=2 * h * layers + h,
        head=0 if cfg.tie_word_embeddings else cfg.vocab_size * h,
    )


def _attention(cfg: ModelSpec) -> int:
    h, heads = cfg.hidden_size, cfg.num_attention_heads
    if not cfg.is_mla:
        return sum(2 * h * heads * dim + 2 * h * kv_heads * dim for kv_heads, dim in cfg.kv_shapes)
    rank, value = cfg.kv_lora_rank or 0, cfg.v_head_dim or 0
    query_in = cfg.q_lora_rank or h
    query = query_in * heads * cfg.head_dim + (
        h * query_in + query_in if cfg.q_lora_rank else 0
    )  # a low-rank q has a norm between
    latent = h * cfg.latent_dim + rank + rank * heads * ((cfg.qk_nope_head_dim or 0) + value)  # down, norm, up
    return cfg.num_hidden_layers * (query + latent + heads * value * h)


@param_breakdown.working
def _(parts: ParamBreakdown, cfg: ModelSpec) -> Iterator[str]:
    h, layers, vocab = cfg.hidden_size, cfg.num_hidden_layers, cfg.vocab_size
    yield f"embedding: vocabulary × hidden = {vocab:,} × {h:,} = {parts.embedding:,}"
    if parts.positions:
        yield f"positions: {cfg.learned_positions:,} × {h:,} = {parts.positions:,}"
    if cfg.is_mla or cfg.layer_kv_shapes:
        yield f"attention: {layers} layers, together {parts.attention:,}"
    else:
        q, kv = cfg.num_attention_heads * cfg.head_dim, cfg.num_key_value_heads * cfg.head_dim
        yield f"attention: layers × (q and o: 2 × {h:,} × {q:,}, k and v: 2 × {h:,} × {kv:,}) = {layers} × {parts.attention // layers:,} = {parts.attention:,}"
    dense = layers - cfg.num_moe_layers
    matrices = 3 if cfg.gated_mlp else 2
    if dense:
        yield f"MLP: layers × {matrices} × hidden × intermediate = {dense} × {matrices} × {h:,} × {cfg.intermediate_size:,} = {parts.mlp:,}"
    if cfg.num_moe_layers:
        yield f"experts: {cfg.num_moe_layers} layers × {cfg.num_experts} routed and {cfg.n_shared_experts} shared = {parts.experts:,}, router {parts.router:,}"
    yield f"norms: 2 × {layers} × {h:,} + {h:,} = {parts.norms:,}"
    yield f"output head: {'tied to the embedding' if cfg.tie_word_embeddings else f'{vocab:,} × {h:,}'} = {parts.head:,}"
    yield f"= {parts.total:,} parameters"


@explained(NOT_COUNTED)
def params(cfg: ModelSpec) -> int:
    """Parameters in all, the embedding counted once when it is tied to the output head. Formula F7."""
    return param_breakdown(cfg).total


@params.working
def _(total: int, cfg: ModelSpec) -> Iterator[str]:
    yield from param_breakdown.steps(cfg)


@explained(NOT_COUNTED)
def active_params(cfg: ModelSpec, tokens: int = 1) -> int:
    """Parameters that a step of `tokens` tokens reads, at most.

    Of the routed experts that is min(experts, tokens × experts per token).

    With one token it is the number that 2 FLOPs each are spent on. A dense model reads everything.
    """
    tokens = count("tokens", tokens)
    return _counted(cfg, min(model_spec("cfg", cfg).num_experts, tokens * cfg.num_experts_per_tok)).total


@active_params.working
def _(total: int, cfg: ModelSpec, tokens: int) -> Iterator[str]:
    if not cfg.num_experts:
        yield f"a dense model reads all its parameters: {total:,}"
        return
    read = min(cfg.num_experts, tokens * cfg.num_experts_per_tok)
    yield f"routed experts read per layer, at most: min({cfg.num_experts}, {tokens:,} × {cfg.num_experts_per_tok}) = {read}"
    yield f"parameters with {read} of {cfg.num_experts} experts: {total:,} of {params(cfg):,}"


@explained(f"{NOT_COUNTED}; activations, KV cache, CUDA context; scales of quantized weights")
def weight_bytes(cfg: ModelSpec, dtype: str = "bf16", tp: int = 1) -> int | Fraction:
    """Bytes of weights on each of `tp` GPUs, split evenly. An int where that is whole. Formula F7."""
    size = Fraction(params(cfg) * dtype_bytes("dtype", dtype), count("tp", tp))
    return size.numerator if size.denominator == 1 else size


@weight_bytes.working
def _(size: int | Fraction, cfg: ModelSpec, dtype: str, tp: int) -> Iterator[str]:
    yield from params.steps(cfg)
    yield f"parameters × bytes per element ({dtype}) / GPUs"
    yield f"= {params(cfg):,} × {dtype_bytes('dtype', dtype)} / {tp} = {format_bytes(size)}"
