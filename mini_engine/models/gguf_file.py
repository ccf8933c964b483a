"""A GGUF file, llama.cpp's format: metadata, vocabulary and (often quantised) weights in one file.

Weights are rounded to float16 once, as they are read, so that every path through the engine, and every oracle, sees the same numbers.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, quants

from mini_engine.catalog import ModelSpec
from mini_engine.models.errors import CorruptModelError, UnsupportedModelError
from mini_engine.models.layout import EMBED, LM_HEAD, NORM, bias_name, check_spec, layer_name
from mini_engine.models.tokenizer import Tokenizer, check_vocabulary

REMEDY = "the download is incomplete or damaged: fetch it again"
ROWS_AT_ONCE = 4096  # decoding takes several float32 copies: of a few rows, not of a whole embedding
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""GGUF's name of an architecture to Hugging Face's. Mistral's files are "llama" here."""

TENSOR_NAMES = {"token_embd.weight": EMBED, "output_norm.weight": NORM, "output.weight": LM_HEAD}
LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Every key of an architecture whose meaning is covered below. A key outside this list might change the computation, so it is refused.
KNOWN_KEYS = {
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.layer_norm_rms_epsilon",
    "attention.sliding_window", "attention.value_length", "block_count", "context_length", "embedding_length",
    "expert_count", "expert_used_count", "feed_forward_length", "rope.dimension_count", "rope.freq_base",
    "rope.scaling.type", "vocab_size",
}  # fmt: skip


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name that is no part of these models stays as it is and is refused later."""
    part = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if part and part[2] in LAYER_PARTS:
        weight = layer_name(int(part[1]), LAYER_PARTS[part[2]])
        return weight if part[3] == "weight" else bias_name(weight)
    return TENSOR_NAMES.get(name, name)


class CheckedReader(GGUFReader):
    """The package's reader, with an error that names the tensor where the file ends too early, and twice as fast."""

    @property  # type: ignore[override]
    def data(self) -> np.ndarray:
        """The whole file as bytes, mapped, not read."""
        return self._bytes

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        """The whole file as bytes, mapped, not read."""
        # A million small slices of a plain array cost half of what they do of a memmap.
        self._bytes = np.asarray(mapped)

    def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
        known = {int(kind) for kind in GGMLQuantizationType}
        for field in fields:
            _, _, _, dims, kind, offset = field.parts
            if int(kind[0]) not in known:
                raise UnsupportedModelError(
                    f"the tensor {field.name} has the unknown type {int(kind[0])}; convert the file to F16 or Q8_0"
                )
            block, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType(int(kind[0]))]
            end = int(start_offs) + int(offset[0]) + int(np.prod(dims)) // block * nbytes
            if end > self.data.size:
                raise CorruptModelError(
                    f"the tensor {field.name} ends at byte {end}, the file after {self.data.size}; {REMEDY}"
                )
        super()._build_tensors(start_offs, fields)


class GGUFFile:
    """Weights and vocabulary of a GGUF file, read tensor by tensor."""

    def __init__(self, path: Path) -> None:
        """Read the metadata. Raises CorruptModelError or UnsupportedModelError; decodes no weight yet."""
        self.path = path
        try:
            self._reader = CheckedReader(path)
        except (UnsupportedModelError, CorruptModelError) as error:
            raise type(error)(f"{path}: {error}") from None
        except Exception as error:  # the reader stumbles in many ways over bytes that are not what it expects
            raise CorruptModelError(
                f"{path}: not a readable GGUF file of {path.stat().st_size} bytes ({type(error).__name__}: {error}); {REMEDY}"
            ) from error
        self._tensors: dict[str, Any] = {}
        for tensor in self._reader.tensors:
            first = self._tensors.setdefault(hf_name(tensor.name), tensor)
            if first is not tensor:
                raise CorruptModelError(
                    f"{path}: {first.name} and {tensor.name} are the same part of a model; {REMEDY}"
                )
        try:
            self.spec = self._spec()
        except (UnsupportedModelError, CorruptModelError):
            raise
        except (ValueError, TypeError, ZeroDivisionError) as error:
            raise CorruptModelError(f"{path}: the metadata holds an impossible value ({error}); {REMEDY}") from error
        check_spec(self.spec, path)

    def field(self, key: str, default: Any = ...) -> Any:
        """A metadata value. CorruptModelError when it is not text, or is missing and there is no default."""
        field = self._reader.fields.get(key)
        if field is not None:
            try:
                return field.contents()
            except UnicodeDecodeError as error:
                raise CorruptModelError(
                    f"{self.path}: the metadata {key} is not valid text ({error}); {REMEDY}"
                ) from None
        if default is ...:
            raise CorruptModelError(f"{self.path}: the metadata lacks {key}; {REMEDY}")
        return default

    def _spec(self) -> ModelSpec:
        kind = self.field("general.architecture")
        if kind not in ARCHITECTURES:
            known = ", ".join(map(repr, ARCHITECTURES))
            raise UnsupportedModelError(f"{self.path}: general.architecture is {kind!r}; only {known} can be run")
        if self.field("split.count", 1) > 1:
            raise UnsupportedModelError(
                f"{self.path}: the model is split over {self.field('split.count')} files; merge them with llama.cpp's gguf-split"
            )

        def field(key: str, default: Any = ...) -> Any:
            return self.field(f"{kind}.{key}", default)

        layers = field("block_count")
        if layers > len(self._tensors):  # before anything is made for each layer
            raise CorruptModelError(
                f"{self.path}: {kind}.block_count is {layers}, the file holds {len(self._tensors)} tensors; {REMEDY}"
            )
        heads, hidden = field("attention.head_count"), field("embedding_length")
        head_dim = field("attention.key_length", None) or hidden // heads
        for key, supported in (  # what would change the computation, and the value that does not
            ("expert_count", 0),
            ("rope.scaling.type", "none"),
            ("rope.dimension_count", head_dim),
            ("attention.value_length", head_dim),
        ):
            if field(key, supported) != supported:
                raise UnsupportedModelError(
                    f"{self.path}: {kind}.{key} is {field(key)!r}; only {supported!r} can be run"
                    + (": use the model's Hugging Face folder" if key == "rope.scaling.type" else "")
                )
        if "rope_freqs.weight" in self._tensors:
            raise UnsupportedModelError(
                f"{self.path}: rope_freqs.weight scales RoPE (Llama 3.1), which is read from a Hugging Face folder only: use that"
            )
        for key in self._reader.fields:
            if key.startswith(f"{kind}.") and key.removeprefix(f"{kind}.") not in KNOWN_KEYS:
                raise UnsupportedModelError(
                    f"{self.path}: the metadata key {key}={self.field(key)!r} is not known; the model may need more than a plain {kind}"
                )
        eos, window = self.field("tokenizer.ggml.eos_token_id", None), field("attention.sliding_window", 0)
        return ModelSpec(
            name=self.path.stem,
            architecture=ARCHITECTURES[kind],
            model_type=kind,
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            num_key_value_heads=field("attention.head_count_kv", heads),
            head_dim=head_dim,
            intermediate_size=field("feed_forward_length"),
            vocab_size=field("vocab_size", None) or len(self.field("tokenizer.ggml.tokens")),
            max_position_embeddings=field("context_length"),
            # Stored as float32: 9.99999975e-06.
            rms_norm_eps=float(f"{field('attention.layer_norm_rms_epsilon'):.7g}"),
            rope_theta=field("rope.freq_base", 10000.0),
            tie_word_embeddings=LM_HEAD not in self._tensors,
            attention_bias=bias_name(layer_name(0, "self_attn.o_proj")) in self._tensors,
            layer_windows=(window,) if window else (),
            bos_token_id=self.field("tokenizer.ggml.bos_token_id", None),
            eos_token_ids=() if eos is None else (eos,),
        )

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{tensor name: shape}, the outermost dimension first."""
        # GGUF lists dimensions innermost first.
        return {name: tuple(map(int, reversed(tensor.shape))) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """The tensor in float16, in Hugging Face's order of rows. UnsupportedModelError for a quantisation the package cannot decode."""
        tensor = self._tensors[name]
        # Read, not mapped: pages of a mapping stay with the process until the whole file is closed.
        stored = np.fromfile(self.path, tensor.data.dtype, tensor.data.size, offset=int(tensor.data_offset))
        stored = stored.reshape(tensor.data.shape)
        step = ROWS_AT_ONCE if stored.ndim > 1 else max(len(stored), 1)
        try:
            with np.errstate(over="ignore"):  # a value too large for float16 becomes infinite, which the models refuse
                values = np.concatenate(
                    [
                        quants.dequantize(stored[first : first + step], tensor.tensor_type).astype(np.float16)
                        for first in range(0, len(stored), step)
                    ]
                )
        except NotImplementedError:
            raise UnsupportedModelError(
                f"{self.path}: the tensor {tensor.name} has type {tensor.tensor_type.name}, which cannot be decoded; convert the file to F16 or Q8_0"
            ) from None
        if self.spec.model_type == "llama" and re.search(r"\.[qk]_proj\.", name):
            values = self._half_split(values)
        return values

    def _half_split(self, rows: np.ndarray) -> np.ndarray:
        """In files of Llama, llama.cpp rotates neighbouring dimensions, Hugging Face i with i + D/2: put each head's even rows
        first, then its odd ones.
        """
        D = self.spec.head_dim
        return rows.reshape(-1, D // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)

    def where(self, name: str) -> Path:
        """The file that holds a tensor: the only one."""
        return self.path

    def tokenizer(self) -> Tokenizer:
        """The tokenizer rebuilt from the vocabulary and merges in the file."""
        from mini_engine.models.gguf_tokenizer import build_backend

        backend = build_backend(self)
        ids = {
            name: self.field(f"tokenizer.ggml.{name}_token_id", None) for name in ("bos", "eos", "unknown", "padding")
        }
        tokenizer = Tokenizer(
            backend,
            eos_token_ids=self.spec.eos_token_ids,
            chat_template=self.field("tokenizer.chat_template", None),
            special_tokens={f"{name}_token": backend.id_to_token(i) or "" for name, i in ids.items() if i is not None},
        )
        check_vocabulary(tokenizer, self.spec, self.path)
        return tokenizer
