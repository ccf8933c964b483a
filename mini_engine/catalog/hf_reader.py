"""Look fields of a `config.json` up, wherever it keeps them and whatever it calls them."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from mini_engine.arguments import count
from mini_engine.catalog.hf_families import NESTED, NESTED_DEFAULTS, OTHER_FAMILIES, OTHER_NAMES, SECTIONS


class Reader:
    """One configuration. `get` looks a field up under all its names; a missing one raises ValueError that names it."""

    def __init__(self, config: Mapping[str, Any], name: str, where: str):
        self.outer, self.name, self.where, self.nested = config, name, where, False
        while inner := next((config[key] for key in NESTED if isinstance(config.get(key), Mapping)), None):
            config, self.nested = inner, True
        self.config = config
        given = config.get("model_type") or self.outer.get("model_type")
        self.model_type = OTHER_FAMILIES.get(str(given), str(given or "llama"))
        self.kind = f"(model_type {given!r})" if given else "(no model_type, read as a llama)"
        self.nested &= bool(config.get("model_type"))

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field, or the default."""
        return self.find(field, default)[1]

    def find(self, field: str, default: Any = None) -> tuple[str, Any]:
        """The field as the file calls it, and its value."""
        sections = [
            self.config,
            *(self.config[name] for name in SECTIONS if isinstance(self.config.get(name), Mapping)),
        ]
        for key in (field, *OTHER_NAMES.get(field, ())):
            for section in sections:
                if section.get(key) is not None:
                    return key, section[key]
        if self.nested:
            default = NESTED_DEFAULTS.get(self.model_type, {}).get(field, default)
        return field, default

    def integer(self, field: str, default: Any = None) -> int:
        """A count of at least 1."""
        key, value = self.find(field, default)
        if value is None:
            names = " or ".join((field, *OTHER_NAMES.get(field, ())))
            raise ValueError(f"{self.where} {self.kind} lacks {names}")
        if isinstance(value, list) and len(set(map(str, value))) == 1:
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{key}={reprlib.repr(value)} must be one integer")
        return count(key, value)

    def positive(self, field: str, value: Any) -> float:
        """The value as a float. ValueError, naming the field, unless it is a finite number above 0."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise ValueError(f"{field}={reprlib.repr(value)} must be a finite number above 0")
        return float(value)
