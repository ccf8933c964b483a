"""GGUF files: the same model as the folder they were made from, and every way they can be wrong."""

from __future__ import annotations

from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_model, load_weights, open_checkpoint
from mini_engine.models.gguf_tokenizer import pre_tokenizer
from tests.models.damage import MERGES, SPECIAL, TOKENS, VOCAB_SIZE, byte_level_tokenizer, fails, make_folder, make_gguf
from tests.oracle import FAMILIES, ROW_TOLERANCE, full_logits, row_error, transformers_logits

IDS = np.random.default_rng(2).integers(0, VOCAB_SIZE, size=50).tolist()
TYPES = gguf.GGMLQuantizationType


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
    }
    return make_folder(tmp_path_factory.mktemp("folder"), dtype=torch.float16, **shape)


@pytest.fixture
def make(folder, tmp_path):
    return lambda **options: make_gguf(tmp_path / "model.gguf", folder, **options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One of every family, with heads that are not hidden_size / heads wide, and windows where a family has them."""
    own = {"mistral": {"sliding_window": 100}, "llama": {"attention_bias": True}}
    return {
        family: make_folder(
            tmp_path_factory.mktemp(family), family, dtype=torch.float16, hidden_size=64, intermediate_size=96,
            num_attention_heads=4, num_key_value_heads=2, head_dim=24, **own.get(family, {}),
        )
        for family in FAMILIES
    }  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_an_f16_file_is_the_model_it_was_made_from(folders, family, backend, tmp_path):
    """The independent truth about the order of q and k rows: transformers on the original folder."""
    metadata = {"llama.attention.sliding_window": 100} if family == "mistral" else {}
    path = make_gguf(tmp_path / "model.gguf", folders[family], metadata=metadata)
    model = load_weights(path, backend=backend)
    assert row_error(full_logits(model, IDS), transformers_logits(folders[family])(IDS)) < ROW_TOLERANCE
    architecture = "llama" if family == "mistral" else family
    expected = replace(open_checkpoint(folders[family]).spec, name="")
    assert replace(model.spec, name="", architecture=expected.architecture, model_type=family) == expected
    assert model.spec.model_type == architecture


@pytest.mark.parametrize("kind", [TYPES.F32, TYPES.Q8_0, TYPES.Q4_1, TYPES.BF16])
def test_quantised_files_are_decoded_and_rounded_once(make, folder, kind):
    checkpoint = open_checkpoint(make(quantise=kind))
    original = open_checkpoint(folder)
    error = {TYPES.F32: 0, TYPES.BF16: 2**-8, TYPES.Q8_0: 1 / 120, TYPES.Q4_1: 1 / 14}[kind]
    for name in original.shapes:
        values, exact = checkpoint.read(name), original.read(name)
        assert values.dtype == np.float16
        np.testing.assert_allclose(values, exact, rtol=0, atol=error * np.abs(exact).max())


def test_a_file_without_a_head_is_tied(make, tmp_path):
    tied = make_folder(tmp_path / "tied", hidden_size=64, head_dim=16, num_attention_heads=4, tie_word_embeddings=True)
    path = make_gguf(tmp_path / "tied.gguf", tied, quantise=TYPES.F32)
    model = load_weights(path, backend="numpy")
    assert model.spec.tie_word_embeddings
    assert row_error(full_logits(model, IDS), transformers_logits(tied)(IDS)) < 1e-2  # weights rounded to float16
    assert row_error(full_logits(load_weights(path), IDS), full_logits(model, IDS)) < ROW_TOLERANCE


def test_the_tokenizer_is_rebuilt(make):
    loaded = load_model(make(metadata={"tokenizer.chat_template": "{{ eos_token }}{{ messages[0].content }}"}))
    text = "hello  wörld 123 <|im_end|>\n é"
    assert loaded.tokenizer.encode(text) == byte_level_tokenizer().encode(text).ids
    assert loaded.tokenizer.eos_token_ids == (2,)
    assert loaded.tokenizer.apply_chat_template([{"role": "user", "content": "x"}]) == "<|im_end|>x"


TEXTS = [
    "hello  wörld 123\n\n  it's we'll",
    "  a\tb\r\nc 巴黎 e\u0301 🗼!? <|im_end|>\n",
    "x=1;\n\n\n    y = (2**10)  ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_of_qwen_is_that_of_transformers(make, text):
    from transformers import Qwen2Tokenizer

    ours = load_model(make(pre="qwen2")).tokenizer
    theirs = Qwen2Tokenizer({token: i for i, token in enumerate(TOKENS)}, MERGES, additional_special_tokens=SPECIAL)
    cut = theirs.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert pre_tokenizer("qwen2").pre_tokenize_str(text) == cut
    assert ours.encode(text) == theirs.encode(text)


def test_bos_is_added_only_when_the_file_says_so(folder, tmp_path, monkeypatch):
    tokenizer = load_model(make_gguf(tmp_path / "a.gguf", folder)).tokenizer
    write_end = gguf.GGUFWriter.add_eos_token_id

    def with_bos(writer, token):
        write_end(writer, token)
        writer.add_bos_token_id(1)
        writer.add_add_bos_token(True)

    monkeypatch.setattr(gguf.GGUFWriter, "add_eos_token_id", with_bos)
    adding = load_model(make_gguf(tmp_path / "b.gguf", folder)).tokenizer
    assert adding.encode("hello") == [1, *tokenizer.encode("hello")]
    assert adding.encode("hello", add_special_tokens=False) == tokenizer.encode("hello")


@pytest.mark.parametrize("keep", [0, 3, 4, 20, 100, 1000, 0.5, 0.9, -1, -500])
def test_truncated_files(make, keep):
    path = make()
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    fails(CorruptModelError, path, "fetch it again")


def test_a_truncated_file_names_the_tensor_and_the_sizes(make):
    path = make()
    data = path.read_bytes()
    last = gguf.GGUFReader(path).tensors[-1]
    path.write_bytes(data[: int(last.data_offset) + 10])
    fails(CorruptModelError, path, last.name, str(last.data_offset + last.n_bytes), str(last.data_offset + 10))


def test_a_file_that_is_no_gguf(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04" * 100)
    fails(CorruptModelError, path, "magic")


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"architecture": "gemma3"}, ["gemma3", "only 'llama', 'qwen2', 'qwen3'"]),
        ({"metadata": {"llama.expert_count": 8}}, ["llama.expert_count", "8"]),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, ["llama.rope.scaling.type", "yarn"]),
        ({"metadata": {"llama.rope.dimension_count": 12}}, ["llama.rope.dimension_count", "12", "24"]),
        ({"metadata": {"llama.logit_scale": 0.5}}, ["llama.logit_scale", "0.5"]),
        ({"metadata": {"split.count": 2}}, ["2 files"]),
        ({"tensors": lambda t: t.update({"rope_freqs.weight": np.ones(12, np.float32)})}, ["rope_freqs.weight"]),
        ({"pre": "llama-bpe"}, ["llama-bpe", "Hugging Face folder"]),
        ({"metadata": {"tokenizer.ggml.model": "llama"}, "tokenizer": False}, ["'llama'", "Hugging Face folder"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_unsupported_files(make, options, fragments):
    fails(UnsupportedModelError, make(**options), *fragments)


@pytest.mark.parametrize(
    "key", ["llama.block_count", "llama.embedding_length", "llama.attention.layer_norm_rms_epsilon"]
)
def test_missing_metadata(make, key):
    fails(CorruptModelError, make(metadata={key: None}), key)


@pytest.mark.parametrize("key", ["llama.embedding_length", "llama.block_count", "llama.context_length"])
def test_metadata_of_the_wrong_kind(make, key):
    fails(CorruptModelError, make(metadata={key: "many"}))


@pytest.mark.parametrize(
    ("metadata", "fragments"),
    [
        ({"llama.block_count": 10**9}, ["llama.block_count is 1000000000", "tensors"]),
        ({"llama.context_length": 0}, ["max_position_embeddings must be at least 1, found 0"]),
        ({"llama.context_length": 10**9}, ["max_position_embeddings must be at most 4194304, found 1000000000"]),
        ({"llama.attention.layer_norm_rms_epsilon": float("inf")}, ["rms_norm_eps", "found inf"]),
        ({"llama.rope.freq_base": float("nan")}, ["rope_theta", "found nan"]),
        ({"tokenizer.ggml.bos_token_id": 10**9}, ["bos_token_id must be in 0 .. 279", "found 1000000000"]),
    ],
    ids=str,
)
def test_numbers_that_no_model_has(make, metadata, fragments):
    fails(CorruptModelError, make(metadata=metadata), *fragments)


def test_metadata_that_is_not_text(make):
    path = make()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"<|im_start|>", b"<|im_\xff\xff\xffrt|>"))
    fails(CorruptModelError, path, "tokenizer.ggml.tokens", "not valid text")


Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda t: t.pop("blk.1.attn_q.weight"), [Q, "missing"]),
        (
            lambda t: t.update({"blk.1.attn_q.weight": t["blk.1.attn_q.weight"][:-1]}),
            [Q, "[95, 64]", "expected [96, 64]"],
        ),
        (
            lambda t: t.update({"model.norm.weight": t["output_norm.weight"] * 3}),
            ["output_norm.weight and model.norm.weight are the same part of a model"],
        ),
        (lambda t: t.update({"blk.0.attn_q.bias": np.ones(96, np.float32)}), ["layers.0.self_attn.q_proj.bias"]),
        (lambda t: t.update({"blk.1.ffn_norm.weight": np.full(64, 1e9, np.float32)}), ["post_attention", "not finite"]),
    ],
    ids=["missing", "wrong shape", "one part by two names", "a bias", "too large for float16"],
)
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_tensors_that_do_not_fit(make, change, fragments, backend):
    fails(CorruptModelError, make(tensors=change), *fragments, load=lambda path: load_weights(path, backend=backend))


def overwrite_type(path, tensor_name, kind):
    """Replace the type number in a tensor's header: after its name come n_dims (u32), the dims (u64 each), the type (u32)."""
    data = bytearray(path.read_bytes())
    at = data.index(tensor_name.encode()) + len(tensor_name)
    dims = int.from_bytes(data[at : at + 4], "little")
    data[at + 4 + 8 * dims : at + 8 + 8 * dims] = kind.to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize(("kind", "name"), [(200, "200"), (int(TYPES.I16), "I16")])
def test_tensor_types_that_cannot_be_decoded(make, kind, name):
    path = make()
    overwrite_type(path, "blk.1.attn_q.weight", kind)
    fails(UnsupportedModelError, path, "blk.1.attn_q.weight", name)


def test_a_file_without_a_tokenizer(make):
    path = make(tokenizer=False)
    fails(CorruptModelError, path, "tokenizer", "load_weights")
    assert load_weights(path).spec.vocab_size == VOCAB_SIZE


def test_vocabularies_that_do_not_fit(make):
    fails(CorruptModelError, make(tokens=TOKENS + [f"<{i}>" for i in range(VOCAB_SIZE)]), f"vocab_size is {VOCAB_SIZE}")


def test_merges_that_do_not_fit(make):
    missing = "".join(MERGES[0])
    fails(CorruptModelError, make(tokens=[token if token != missing else "?!" for token in TOKENS]), missing)


def test_tokens_that_repeat(make):
    fails(
        CorruptModelError,
        make(tokens=[*TOKENS, TOKENS[5]]),
        f"{len(TOKENS) + 1} tokens, {len(TOKENS)} of them distinct",
    )


def test_special_tokens_are_control_tokens(make):
    tokenizer = load_model(make()).tokenizer
    assert [tokenizer.encode(token) for token in SPECIAL] == [[0], [1], [2]]
    assert tokenizer.decode([0, *tokenizer.encode("hello"), 2]) == "hello"
