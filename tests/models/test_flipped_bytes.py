"""A file with a few wrong bytes loads or is refused with one of the two errors for models: it never fails in another way."""

from __future__ import annotations

import random

import pytest
import torch

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_model
from tests.models.damage import make_folder, make_gguf
from tests.oracle import FAMILIES, LATENT_FAMILIES, full_logits

SMALL = {
    "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
    "intermediate_size": 32,
}  # fmt: skip
LATENT = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 32, "q_lora_rank": 16}
FILES = {"model.gguf": 13_000, "model.safetensors": 1200, "config.json": 10**6, "tokenizer.json": 10**6}
CASES = [(family, name) for family in FAMILIES for name in FILES]
CASES += [(family, name) for family in LATENT_FAMILIES for name in FILES if name != "model.gguf"]


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    shape = LATENT if family in LATENT_FAMILIES else SMALL
    return make_folder(tmp_path_factory.mktemp("flipped"), family, dtype=torch.float16, **shape)


@pytest.mark.parametrize(("family", "name"), CASES, indirect=["family"])
def test_flipped_bytes(folder, name):
    size = FILES[name]
    path = folder / name
    model = make_gguf(path, folder) if name == "model.gguf" else folder
    sound = path.read_bytes()
    assert full_logits(load_model(model).model, [1, 2]).shape == (2, 280)
    generator = random.Random(0)
    refused = 0
    try:
        for _ in range(80):
            damaged = bytearray(sound)
            for _ in range(generator.choice([1, 1, 3])):
                damaged[generator.randrange(min(size, len(sound)))] = generator.randrange(256)
            path.write_bytes(damaged)
            try:
                loaded = load_model(model)
            except (CorruptModelError, UnsupportedModelError):
                refused += 1
            else:
                full_logits(loaded.model, [1, 2])
    finally:
        path.write_bytes(sound)
    assert refused > 20
