"""Open a `config.json`: what is no file, or no JSON object, is refused with its path."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def load_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The contents, and the model's name, of a `config.json`, its folder, or contents that were read already."""
    if isinstance(source, Mapping):
        return source, str(source.get("name") or source.get("_name_or_path") or "")
    if not os.fspath(source):  # as a path it would be the folder we happen to be in
        raise FileNotFoundError("the path is empty: give a model's config.json, or the folder that holds it")
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        fault = "is not a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {fault}: give a model's config.json, or the folder that holds it")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply for a config.json: fetch the file again") from None
    except ValueError as error:  # broken JSON, broken UTF-8, or a number of thousands of digits
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds a {type(config).__name__}, not the object a config.json is")
    return config, str(config.get("name") or path.resolve().parent.name)
