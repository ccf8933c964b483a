"""What the code of a model family knows and its `config.json` need not say: other names of fields, defaults, habits.

The defaults are those of the configuration classes of transformers 5.24; a test compares them.
"""

from __future__ import annotations

from typing import Any

OTHER_NAMES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model", "model_dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": (
        "num_kv_heads",
        "n_head_kv",
        "kv_n_heads",
        "multi_query_group_num",
        "num_query_groups",
        "num_attention_groups",
    ),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "dff", "dim_ff", "intermediate_size_mlp"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
    "max_position_embeddings": (
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "max_sequence_length",
        "seq_length",
        "seq_len",
        "model_max_length",
    ),
    "rms_norm_eps": ("layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps"),
    "rope_theta": ("rotary_emb_base", "rope_base"),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_topk", "moe_top_k", "moe_k", "top_k_experts", "num_experts_per_token"),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size", "shared_intermediate_size"),
}
"""Our field, which is the usual name, and what other families call it."""

OTHER_FAMILIES = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon"}
"""What a family was called before it had its name."""

WINDOW_BY_DEFAULT = {"mistral": 4096}
"""Families whose layers have a window when `sliding_window` is not written at all."""

WINDOW_OFF_BY_DEFAULT = frozenset(["qwen2", "qwen2_moe", "qwen3", "qwen3_moe"])
"""Families whose window counts only with `use_sliding_window: true`."""

SECTIONS = ("attn_config", "ffn_config")
"""Where MPT and DBRX keep some of these."""

NESTED = ("text_config", "llm_config", "language_config", "thinker_config", "text_model", "decoder")
"""Where multimodal models keep their language model."""

TIED_BY_DEFAULT = frozenset(
    [
        "bloom", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text",
        "gemma3n_text", "gemma4_text", "gpt2", "gpt_bigcode", "gpt_neo", "jetmoe", "lfm2", "lfm2_moe", "minicpm3", "mpt",
        "openai-gpt", "opt", "recurrent_gemma", "smollm3", "starcoder2", "vaultgemma", "youtu", "zamba", "zamba2",
    ]
)  # fmt: skip
"""Families whose class ties the embeddings when `tie_word_embeddings` is not written."""

HEAD_DIM_BY_DEFAULT = dict.fromkeys(
    ["gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "recurrent_gemma"], 256
)
HEAD_DIM_BY_DEFAULT |= {"qwen3": 128, "qwen3_next": 256, "gpt_oss": 64}
"""Families whose class has a head size of its own, so that hidden_size / num_attention_heads would be wrong."""

NESTED_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    },
    "llama": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    },
}
"""A nested text model is saved as its difference from its class.

These classes' values are filled in, in nested configurations only.
"""

TWO_MATRIX_MLP = frozenset(
    [
        "apertus", "arcee", "bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt",
        "nemotron", "openai-gpt", "opt", "persimmon", "phi", "starcoder2",
    ]
)  # fmt: skip
"""Families whose MLP is up and down; the others have a gate as well."""

LEARNED_POSITIONS = {"gpt2": 0, "gpt_bigcode": 0, "gpt_neo": 0, "opt": 2}
"""Families with a table of learned positions, and the rows it has beyond max_position_embeddings."""

NO_POSITION_LIMIT = frozenset(["bailing_hybrid", "bloom", "kimi_linear", "mpt", "recurrent_gemma"])
"""Families that may run at any length: ALiBi, recurrence, or attention without positions."""

ENCODERS = frozenset(
    [
        "albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta",
        "xlm-roberta",
    ]
)  # fmt: skip
"""Families that look both ways and keep no cache."""

ENCODER_DECODERS = frozenset(
    [
        "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "fsmt", "led", "longt5", "m2m_100",
        "marian", "mbart", "moonshine", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart", "prophetnet",
        "speech-encoder-decoder", "speech_to_text", "switch_transformers", "t5", "t5gemma", "udop", "umt5",
        "vision-encoder-decoder", "whisper",
    ]
)  # fmt: skip
"""Families with an encoder beside the decoder, whether `is_encoder_decoder` is written or not."""

RECURRENT = frozenset(["falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"])
"""Families without attention, whose state has one size at any length."""

LATENT = frozenset(
    [
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_k2", "longcat_flash", "minicpm3",
        "youtu",
    ]
)  # fmt: skip
"""Families with latent attention (MLA): without kv_lora_rank their cache is unknown, not one of ordinary heads."""

MIXTURES = frozenset(["dbrx", "gpt_oss", "mixtral"])
"""Mixtures of experts whose names do not say "moe"."""
