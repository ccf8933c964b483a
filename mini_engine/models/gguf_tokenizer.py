"""A byte-level BPE tokenizer from the vocabulary and merges that a GGUF file carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from mini_engine.models.errors import CorruptModelError, UnsupportedModelError

if TYPE_CHECKING:
    from mini_engine.models.gguf_file import GGUFFile

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type


def pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer | None:
    """How text is cut before the merges apply, by GGUF's name for it. None for a kind that is not known here."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "gpt-2":
        return byte_level
    if kind == "qwen2":
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if kind == "smollm":  # every digit stands alone
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return None


def build_backend(file: GGUFFile) -> Tokenizer:
    """The tokenizer of the file. UnsupportedModelError for another kind, CorruptModelError when parts are missing."""
    kind, pre = file.field("tokenizer.ggml.model", None), file.field("tokenizer.ggml.pre", "gpt-2")
    if kind is None:
        raise CorruptModelError(
            f"{file.path}: the tokenizer is missing; fetch a complete file, or use load_weights to load the model without one"
        )
    cut = pre_tokenizer(pre)
    if kind != "gpt2" or cut is None:
        raise UnsupportedModelError(
            f"{file.path}: the tokenizer is {kind!r} with pre-tokenizer {pre!r}; only 'gpt2' with 'gpt-2', 'smollm' or 'qwen2' can be rebuilt "
            "from a GGUF: use the model's Hugging Face folder"
        )
    tokens, types = file.field("tokenizer.ggml.tokens"), file.field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in file.field("tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens) or len(types) != len(tokens):
        raise CorruptModelError(
            f"{file.path}: {len(tokens)} tokens, {len(vocabulary)} of them distinct, and {len(types)} token types must be as many; fetch the file again"
        )
    try:
        tokenizer = Tokenizer(BPE(vocabulary, merges))
    except Exception as error:  # the library raises bare Exceptions
        raise CorruptModelError(
            f"{file.path}: the vocabulary and the merges do not fit together ({error}); fetch the file again"
        ) from None
    tokenizer.pre_tokenizer = cut
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == CONTROL, normalized=False)
            for token, kind in zip(tokens, types)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    if file.field("tokenizer.ggml.add_bos_token", False):
        bos = tokenizer.id_to_token(file.field("tokenizer.ggml.bos_token_id"))
        if bos is None:
            raise CorruptModelError(
                f"{file.path}: tokenizer.ggml.bos_token_id is not one of the {len(tokens)} tokens; fetch the file again"
            )
        tokenizer.post_processor = TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", bos, "$B"], special_tokens=[(bos, vocabulary[bos])]
        )
    return tokenizer
