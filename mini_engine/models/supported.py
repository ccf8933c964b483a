"""Which configurations can be run: whatever would change the computation and is not implemented is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from mini_engine.catalog.hf_families import OTHER_NAMES
from mini_engine.models.errors import UnsupportedModelError
from mini_engine.models.families import FAMILIES, Family
from mini_engine.models.latent_layout import check_latent_config
from mini_engine.models.rope import SCALINGS, scaling_kind

SHAPE = {
    "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta",
}  # fmt: skip
READ = {
    "architectures", "model_type", "bos_token_id", "eos_token_id", "tie_word_embeddings", "hidden_act", "attention_bias",
    "mlp_bias", "quantization_config", "rope_parameters", "rope_scaling", "partial_rotary_factor", "sliding_window",
    "use_sliding_window", "is_encoder_decoder", *SHAPE,
}  # fmt: skip
"""Fields that every family has, whose meaning is checked below, in `layout.check_spec`, or carried by the `ModelSpec`."""

ALIASES = {other: field for field in SHAPE for other in OTHER_NAMES.get(field, ())}
"""Names of such fields in other families. These families' own code does not look at them: they may only repeat."""

HARMLESS = {
    # Where the file comes from, and what was written with what.
    "_name_or_path", "name", "transformers_version", "dtype", "torch_dtype", "auto_map", "_commit_hash", "_attn_implementation",
    "_attn_implementation_autoset", "attn_implementation", "unsloth_version", "unsloth_fixed", "unsloth_processed",
    "is_llama_config", "transformers.js_config", "_flash_attn_2_enabled", "use_flash_attention", "use_sdpa",
    # Training only.
    "initializer_range", "attention_dropout", "hidden_dropout", "use_cache", "pretraining_tp", "gradient_checkpointing",
    "neftune_noise_alpha", "keys_to_ignore_at_inference",
    # Tokens, and how to generate when nothing else is said: the engine's sampling parameters say it.
    "pad_token_id", "sep_token_id", "decoder_start_token_id", "tokenizer_class", "prefix", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "task_specific_params", "max_length",
    "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "remove_invalid_values", "exponential_decay_length_penalty",
    "output_scores", "return_dict_in_generate",
    # What the library returns, and heads other than that of a language model.
    "output_hidden_states", "output_attentions", "return_dict", "torchscript", "use_bfloat16", "tf_legacy_loss",
    "chunk_size_feed_forward", "problem_type", "id2label", "label2id", "num_labels", "finetuning_task",
}  # fmt: skip
"""Fields that change nothing in what this engine computes."""

OFF: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "partial_rotary_factor": (1,),
    "mlp_bias": (),
    "is_encoder_decoder": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "attention_multiplier": (),
    "query_pre_attn_scalar": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "clip_qkv": (),
    "pruned_heads": (),
    "use_qk_norm": (),
    "num_experts": (),
    "num_local_experts": (),
    "no_rope_layers": (),
    "scale_emb": (1,),
    "scale_depth": (),
}
"""Fields that change the computation, with the values, besides null and false, that leave it as it is."""


def check_supported(config: Mapping[str, Any], path: Path) -> tuple[str, Family]:
    """The architecture and its family; UnsupportedModelError for whatever would change the computation and is not implemented here.

    A field that nothing is known about is refused too, unless it is null, false or empty: a model that loads and says
    something else than its authors' is worse than one that does not load.
    """

    def refuse(what: str, found: object, supported: str) -> NoReturn:
        raise UnsupportedModelError(f"{path}: {what} is {found!r}; only {supported} can be run")

    architecture = _architecture(config, refuse)
    family = FAMILIES[architecture]
    for field, value in config.items():
        if _is_off(value):
            continue
        if field in OFF:
            if value not in OFF[field]:
                refuse(field, value, " or ".join(map(repr, OFF[field])) or "null or false")
        elif field == "quantization_config":
            refuse(field, value.get("quant_method", "unknown"), "unquantised safetensors, or a GGUF file,")
        elif field == "attention_bias" and not family.optional_bias:
            refuse(field, value, f"models without it (false; model_type is {family.model_type!r})")
        elif field in ALIASES and value != config.get(ALIASES[field]):
            refuse(
                field, value, f"a file where {ALIASES[field]}, the name that {family.model_type!r} reads, says the same"
            )
        elif field not in READ | HARMLESS | family.fields | ALIASES.keys():
            raise UnsupportedModelError(
                f"{path}: the field {field}={value!r} is not known for model_type {family.model_type!r}; the model may need "
                "more than this engine computes. If the field changes nothing, take it out of the file"
            )
    if config.get("sliding_window") == 0 and config.get("use_sliding_window") is not False:
        raise ValueError("sliding_window=0 must be at least 1, or null where there is no window")
    if family.attention == "latent":
        check_latent_config(config)
    ropes = {place: config.get(place) or {} for place in ("rope_parameters", "rope_scaling")}
    for place, rope in ropes.items():  # transformers 5 writes the first, older versions the second and rope_theta
        if not isinstance(rope, Mapping):
            raise ValueError(f"{place}={rope!r} must be an object, or null")
        _check_rope(rope, place, refuse)
    if all(ropes.values()) and _scaling(ropes["rope_scaling"]) != _scaling(ropes["rope_parameters"]):
        refuse(
            "rope_scaling",
            config["rope_scaling"],
            "a file where rope_parameters says the same, or only one of the two,",
        )
    thetas = [each["rope_theta"] for each in (config, *ropes.values()) if each.get("rope_theta") is not None]
    if len(set(thetas)) > 1:
        refuse("rope_theta", thetas, "a file that gives one value for it")
    return architecture, family


def _architecture(config: Mapping[str, Any], refuse: Any) -> str:
    """The one that the file names, or that its model type stands for; both must agree where both are given."""
    architectures, model_type = config.get("architectures") or [], config.get("model_type")
    known = {family.model_type: name for name, family in FAMILIES.items()}
    if not architectures:
        architectures = [known.get(str(model_type), model_type)]
    if len(architectures) != 1 or architectures[0] not in FAMILIES:
        refuse("architectures", architectures, ", ".join(FAMILIES))
    named = FAMILIES[architectures[0]].model_type
    if model_type not in (None, named):  # which of the two would be right?
        refuse("model_type", model_type, f"{named!r} with {architectures[0]}")
    return architectures[0]


def _check_rope(rope: Mapping[str, Any], place: str, refuse: Any) -> None:
    kind = scaling_kind(rope)
    if kind != "default" and kind not in SCALINGS:
        refuse(f"{place} type", kind, f"'default', {', '.join(map(repr, SCALINGS))}")
    if rope.get("type") not in (None, kind):
        refuse(f"{place}: type", rope["type"], f"a file where it agrees with rope_type, {kind!r},")
    known = {"rope_theta", "rope_type", "type", "partial_rotary_factor"} | SCALINGS.get(kind, set())
    for field, value in rope.items():
        if field not in known and not _is_off(value):
            refuse(f"{place}: the field {field}", value, f"a RoPE of type {kind!r} without it")
    if rope.get("partial_rotary_factor") not in (None, 1):
        refuse(f"{place}: partial_rotary_factor", rope["partial_rotary_factor"], "full rotary embeddings (1.0)")


def _scaling(rope: Mapping[str, Any]) -> dict[str, Any]:
    """What a RoPE says about scaling, its kind under one name."""
    said = {field: value for field, value in rope.items() if field not in ("rope_theta", "type") and not _is_off(value)}
    return said | {"rope_type": scaling_kind(rope)}


def _is_off(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})
