"""Which tensors a checkpoint must hold, of what shape, and which numbers of a configuration make a model."""

from __future__ import annotations

import math
import re

import numpy as np

from mini_engine.catalog import ModelSpec
from mini_engine.models.checkpoint import Checkpoint
from mini_engine.models.errors import CorruptModelError, UnsupportedModelError
from mini_engine.models.families import family_of
from mini_engine.models.latent_layout import check_latent, latent_shapes
from mini_engine.models.rope import check_scaling, rope_dim

EMBED, NORM, LM_HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
MAX_POSITIONS = 1 << 22  # more than the context of any published model
HARMLESS = re.compile(r"\.rotary_emb\.inv_freq$")  # old files store the RoPE frequencies, which are computed here


def layer_name(layer: int, part: str) -> str:
    """The name of a weight in a Hugging Face checkpoint, such as `model.layers.3.mlp.up_proj.weight`."""
    return f"model.layers.{layer}.{part}.weight"


def bias_name(name: str) -> str:
    """The bias that belongs to a matrix."""
    return f"{name.removesuffix('.weight')}.bias"


def grouped_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """The tensors of one layer's grouped attention, by their name within the layer."""
    hidden, q, kv = spec.hidden_size, spec.num_attention_heads * spec.head_dim, spec.num_key_value_heads * spec.head_dim
    family = family_of(spec)
    sizes = {"q_proj": (q, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, q)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in sizes.items():
        shapes[f"self_attn.{name}.weight"] = shape
        if spec.attention_bias or (family.qkv_bias and name != "o_proj"):
            shapes[f"self_attn.{name}.bias"] = shape[:1]
    if family.qk_norm:
        shapes |= {f"self_attn.{name}_norm.weight": (spec.head_dim,) for name in "qk"}
    return shapes


ATTENTION_SHAPES = {"grouped": grouped_shapes, "latent": latent_shapes}


def tensor_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, matrices as [out, in]. The output head has none of its own when it is tied."""
    hidden, ffn = spec.hidden_size, spec.intermediate_size
    one_layer = {
        "input_layernorm.weight": (hidden,),
        **ATTENTION_SHAPES[family_of(spec).attention](spec),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    shapes: dict[str, tuple[int, ...]] = {EMBED: (spec.vocab_size, hidden)}
    for layer in range(spec.num_hidden_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in one_layer.items()}
    shapes[NORM] = (hidden,)
    if not spec.tie_word_embeddings:
        shapes[LM_HEAD] = (spec.vocab_size, hidden)
    return shapes


def check_spec(spec: ModelSpec, source: object) -> None:
    """Raise CorruptModelError when the numbers of a configuration, each possible alone, do not make a model, and
    UnsupportedModelError when they make one of another kind.
    """
    for field in ("rms_norm_eps", "rope_theta"):
        value = getattr(spec, field)
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise CorruptModelError(f"{source}: {field} must be a finite number above 0, found {value!r}")
    if spec.num_attention_heads % spec.num_key_value_heads:
        raise CorruptModelError(
            f"{source}: num_attention_heads={spec.num_attention_heads} must be a multiple of "
            f"num_key_value_heads={spec.num_key_value_heads}"
        )
    if rope_dim(spec) % 2:
        raise CorruptModelError(f"{source}: head_dim must be even for rotary embeddings, found {rope_dim(spec)}")
    try:
        check_scaling(spec)
    except ValueError as error:
        raise CorruptModelError(f"{source}: {error}") from None
    if spec.max_model_len < 1:
        raise CorruptModelError(f"{source}: {spec.context_limit} must be at least 1, found {spec.max_model_len}")
    if spec.max_model_len > MAX_POSITIONS:
        raise CorruptModelError(
            f"{source}: {spec.context_limit} must be at most {MAX_POSITIONS}, found {spec.max_model_len}: "
            "the table of rotary angles has one row for each"
        )
    for what, found in (
        ("experts in place of an MLP", spec.num_moe_layers),
        ("layers without attention", spec.layers_without_kv),
        ("layers with K/V shapes of their own", spec.layer_kv_shapes),
        ("learned positions", spec.learned_positions),
        ("an MLP without a gate", not spec.gated_mlp),
    ):
        if found:
            raise UnsupportedModelError(f"{source}: a model with {what} cannot be run")
    if family_of(spec).attention == "latent":
        check_latent(spec, source)
    elif spec.is_mla:
        raise CorruptModelError(f"{source}: kv_lora_rank={spec.kv_lora_rank}, but {spec.architecture} caches no latent")
    check_special_ids(spec, source)


def check_special_ids(spec: ModelSpec, source: object) -> None:
    """Raise CorruptModelError for a begin or end token that is not in the vocabulary: it could never be sampled."""
    bos = () if spec.bos_token_id is None else (spec.bos_token_id,)
    for field, ids in (("bos_token_id", bos), ("eos_token_id", spec.eos_token_ids)):
        for token_id in ids:
            if not isinstance(token_id, int) or not 0 <= token_id < spec.vocab_size:
                raise CorruptModelError(
                    f"{source}: {field} must be in 0 .. {spec.vocab_size - 1} (vocab_size={spec.vocab_size}), "
                    f"found {token_id!r}"
                )


def check_tensors(checkpoint: Checkpoint) -> None:
    """Raise CorruptModelError unless the checkpoint holds exactly the tensors of its configuration, in their shapes."""
    expected, found = tensor_shapes(checkpoint.spec), checkpoint.shapes
    remedy = "the configuration and the weights do not belong together, or the download is incomplete: fetch both again"
    for name, shape in expected.items():
        if name not in found:
            raise CorruptModelError(f"{checkpoint.path}: the tensor {name} {list(shape)} is missing; {remedy}")
        if tuple(found[name]) != shape:
            raise CorruptModelError(
                f"{checkpoint.where(name)}: the tensor {name} has shape {list(found[name])}, expected {list(shape)}; {remedy}"
            )
    unknown = [name for name in found if name not in expected and not HARMLESS.search(name)]
    if LM_HEAD in unknown:  # a tied model whose head was stored all the same: fine if it is the same matrix
        unknown.remove(LM_HEAD)
        if not np.array_equal(checkpoint.read(LM_HEAD), checkpoint.read(EMBED)):
            raise CorruptModelError(
                f"{checkpoint.where(LM_HEAD)}: tie_word_embeddings is true, yet {LM_HEAD} differs from {EMBED}; "
                "set tie_word_embeddings to false in config.json if the head is meant to be separate"
            )
    if unknown:
        raise CorruptModelError(
            f"{checkpoint.where(unknown[0])}: {len(unknown)} tensors are not part of a {checkpoint.spec.architecture} of {checkpoint.spec.num_hidden_layers} "
            f"layers, the first is {unknown[0]} {list(found[unknown[0]])}; {remedy}"
        )


def not_finite(checkpoint: Checkpoint, name: str, dtype: object) -> str:
    """The message for a weight that is NaN or infinite."""
    return (
        f"{checkpoint.where(name)}: the tensor {name} holds values that are not finite in {dtype}; "
        "fetch the file again, or load in float32 if this is a narrower type"
    )


def check_tokens(spec: ModelSpec, token_ids: np.ndarray, positions: np.ndarray) -> None:
    """Raise ValueError for a token outside the vocabulary or a position outside the context."""
    if token_ids.ndim != 1 or token_ids.shape != positions.shape:
        raise ValueError(
            f"token_ids and positions must both have shape [T], found {token_ids.shape} and {positions.shape}"
        )
    for what, values, limit in (
        ("token", token_ids, spec.vocab_size),
        ("position", positions, spec.max_model_len),
    ):
        if values.size and not 0 <= values.min() <= values.max() < limit:
            wrong = values[(values < 0) | (values >= limit)][0]
            name = "vocab_size" if what == "token" else spec.context_limit
            raise ValueError(f"{what} {wrong} is outside 0 .. {limit - 1} ({name}={limit})")
