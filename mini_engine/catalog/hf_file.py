"""Open a `config.json`: what is no file, or no JSON object, is refused with its path."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NO_FILE = "the configuration"
"""What an error calls contents that came without a name."""


def load_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str]:
    """The contents of a `config.json`, its folder, or contents that were read already; the model's name; and what to
    call the file in an error, as the user gave it.
    """
    if isinstance(source, Mapping):
        name = str(source.get("name") or source.get("_name_or_path") or "")
        return source, name, f"the configuration of {name}" if name else NO_FILE
    if not os.fspath(source):  # as a path it would be the folder we happen to be in
        raise FileNotFoundError("the path is empty: give a model's config.json, or the folder that holds it")
    path = Path(os.path.expanduser(source))
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        fault = "is not a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {fault}: give a model's config.json, or the folder that holds it")
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply for a config.json: fetch the file again") from None
    except ValueError as error:  # broken JSON, broken UTF-8, or a number of thousands of digits
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds a {type(config).__name__}, not the object a config.json is")
    shown = os.fspath(source) if Path(source).name == path.name else os.path.join(source, path.name)
    return config, str(config.get("name") or path.resolve().parent.name), shown


@contextmanager
def naming(where: str) -> Iterator[None]:
    """A ValueError inside names the file as well, where there is one."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(where) or where == NO_FILE else f"{where}: {text}") from None
