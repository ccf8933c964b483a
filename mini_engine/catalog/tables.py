"""Models and GPUs by name, from the tables in `data/`."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from mini_engine.arguments import amount, number, shown
from mini_engine.catalog.specs import GPUSpec, ModelSpec
from mini_engine.data_files import data_dir
from mini_engine.units import GB, MIB, TERA

Spec = TypeVar("Spec", ModelSpec, GPUSpec)


def get_model(name: str) -> ModelSpec:
    """The model of `data/models.csv` called `name`; case and punctuation do not matter.

    KeyError lists the near names.
    """
    return _find("model", name, _models())


def get_gpu(name: str) -> GPUSpec:
    """The GPU of `data/gpus.csv` called `name`; case and punctuation do not matter. KeyError lists the near names."""
    return _find("GPU", name, _gpus())


def list_models() -> list[str]:
    """Names that `get_model` knows, in the table's order."""
    return list(_models())


def list_gpus() -> list[str]:
    """Names that `get_gpu` knows, in the table's order."""
    return list(_gpus())


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of `data/<name>`, every cell as text."""
    path = data_dir() / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: install the package again")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def model_row(name: str) -> dict[str, str]:
    """The row of `data/models.csv` behind `get_model(name)`, with its source, its verified flag and its note."""
    spec = get_model(name)
    return next(row for row in read_table("models.csv") if row["name"] == spec.name)


@lru_cache(maxsize=1)
def _models() -> dict[str, ModelSpec]:
    return {row["name"]: model_from_row(row) for row in read_table("models.csv")}


def model_from_row(row: Mapping[str, str]) -> ModelSpec:
    """A row of `data/models.csv` as a ModelSpec.

    An empty cell leaves a field at its default; ValueError names a wrong cell.
    """
    known = {f.name: f.type for f in fields(ModelSpec)}
    values: dict[str, Any] = {}
    for name, cell in row.items():
        if name not in known or cell == "":
            continue
        try:
            values[name] = cell if known[name] == "str" else cell == "yes" if known[name] == "bool" else int(cell)
        except ValueError:
            raise ValueError(f"models.csv: {row.get('name')}: {name}={cell!r} is not an integer") from None
    layers = values["num_hidden_layers"]
    heads = values["num_attention_heads"]
    if "kv_lora_rank" in values:
        values.setdefault("num_key_value_heads", heads)
        values.setdefault("head_dim", values["qk_nope_head_dim"] + values["qk_rope_head_dim"])
    pattern = row.get("layer_pattern") or "F"
    kinds = [pattern[i % len(pattern)] for i in range(layers)]
    window = int(row["sliding_window"]) if row.get("sliding_window") else None
    values["layer_windows"] = tuple(window if kind == "W" else None for kind in kinds if kind in "FW")
    values["layers_without_kv"] = tuple(LAYER_LETTERS[kind] for kind in kinds if kind not in "FW")
    return ModelSpec(**values)


LAYER_LETTERS = {"L": "linear_attention", "M": "mamba"}
"""`layer_pattern` in models.csv repeats over the layers: F full attention, W window, and these without a KV cache."""


@lru_cache(maxsize=1)
def _gpus() -> dict[str, GPUSpec]:
    return {row["name"]: _gpu_from_row(row) for row in read_table("gpus.csv")}


def _gpu_from_row(row: Mapping[str, str]) -> GPUSpec:
    def cell(column: str, unit: int) -> Any:
        return amount(column, number(column, row[column]) * unit, limit=10**21) if row[column] else None

    return GPUSpec(
        name=row["name"],
        memory_bytes=cell("memory_gb", GB),
        memory_bandwidth=cell("memory_bandwidth_gb_per_s", GB),
        bf16_flops=cell("bf16_dense_tflops", TERA),
        fp8_flops=cell("fp8_dense_tflops", TERA),
        link_bandwidth=cell("link_bandwidth_gb_per_s", GB),
        pcie_bandwidth=cell("pcie_bandwidth_gb_per_s", GB),
        reported_memory_bytes=cell("reported_memory_mib", MIB),
        verified=row["verified"],
        source=row["source"],
        note=row["note"],
    )


def _find(what: str, name: str, table: Mapping[str, Spec]) -> Spec:
    wanted = _plain(str(name))
    for known, spec in table.items():
        if _plain(known) == wanted:
            return spec
    near = _near(wanted, table)
    raise KeyError(
        f"no {what} named {shown(name)}. Near names: {', '.join(near)}. All: list_{'models' if what == 'model' else 'gpus'}()"
    )


def _near(wanted: str, names: Iterable[str]) -> list[str]:
    plain = {_plain(name): name for name in names}
    inside = [name for key, name in plain.items() if wanted and (wanted in key or key in wanted)]
    close = [plain[key] for key in difflib.get_close_matches(wanted, plain, n=5, cutoff=0.4)]
    return list(dict.fromkeys([*inside, *close]))[:6] or list(names)[:6]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
