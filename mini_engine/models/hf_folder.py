"""A Hugging Face model folder: config.json, and model.safetensors in one file or in shards with an index."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from mini_engine.catalog import ModelSpec
from mini_engine.catalog.hf_config import token_ids
from mini_engine.models.errors import CorruptModelError, UnsupportedModelError
from mini_engine.models.layout import check_spec, check_special_ids
from mini_engine.models.safetensors_file import SafetensorsFile
from mini_engine.models.supported import check_supported
from mini_engine.models.tokenizer import Tokenizer, check_vocabulary

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. CorruptModelError names the file and, for broken JSON, the place."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorruptModelError(
            f"{path}: the file is missing; a model folder needs it, fetch the folder again"
        ) from None
    except OSError as error:  # a folder of that name, no right to read it
        raise CorruptModelError(f"{path}: not a readable file ({error.strerror}); fetch the folder again") from None
    except RecursionError:
        raise CorruptModelError(f"{path}: nested too deeply; fetch the file again") from None
    except ValueError as error:  # broken JSON or broken UTF-8
        raise CorruptModelError(f"{path}: not valid JSON ({error}); fetch the file again") from None
    if not isinstance(value, dict):
        raise CorruptModelError(f"{path}: expected a JSON object, found a {type(value).__name__}; fetch the file again")
    return value


def _same(one: SafetensorsFile, other: SafetensorsFile, name: str) -> bool:
    """True if two files hold the same tensor of that name."""
    return one.shapes[name] == other.shapes[name] and np.array_equal(one.read(name), other.read(name))


class HFFolder:
    """Weights of a Hugging Face folder, read tensor by tensor."""

    def __init__(self, path: Path) -> None:
        """Read config, index and headers. Raises CorruptModelError or UnsupportedModelError; reads no weight yet."""
        self.path = path
        config_path = path / "config.json"
        config = read_json(config_path)
        try:
            architecture, family = check_supported(config, config_path)
            spec = ModelSpec.from_hf_config(
                {**config, "architectures": [architecture], "model_type": family.model_type}
            )
            if (
                not spec.max_position_embeddings
            ):  # enough for a calculator, not for a model that must know where to stop
                raise ValueError("the configuration lacks max_position_embeddings")
        except UnsupportedModelError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # a value missing or of the wrong type
            raise CorruptModelError(f"{config_path}: {error}; fetch the file again") from error
        check_spec(spec, config_path)
        spec = self._with_more_end_tokens(spec)
        self.spec = dataclasses.replace(spec, name=spec.name or path.absolute().name)
        self._files = self._open()

    def _with_more_end_tokens(self, spec: ModelSpec) -> ModelSpec:
        """Chat models often name more than one end token in generation_config.json, and only there."""
        path = self.path / "generation_config.json"
        eos = read_json(path).get("eos_token_id") if path.exists() else None
        if eos is None:
            return spec
        try:
            spec = dataclasses.replace(spec, eos_token_ids=token_ids("eos_token_id", eos))
        except ValueError as error:
            raise CorruptModelError(f"{path}: {error}; fetch the file again") from None
        check_special_ids(spec, path)
        return spec

    def _open(self) -> dict[str, SafetensorsFile]:
        """tensor name -> its file."""
        if (self.path / SINGLE).exists():
            file = SafetensorsFile(self.path / SINGLE)
            return dict.fromkeys(file.shapes, file)
        index_path = self.path / INDEX
        if not index_path.exists():
            if any(self.path.glob("*.bin")) or any(self.path.glob("*.pth")):
                raise UnsupportedModelError(
                    f"{self.path}: the weights are pickles; only safetensors are read, convert them first"
                )
            raise CorruptModelError(f"{self.path}: neither {SINGLE} nor {INDEX} is there; fetch the weights")
        weight_map = read_json(index_path).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
            raise CorruptModelError(
                f"{index_path}: expected a weight_map from tensor names to file names; fetch the file again"
            )
        shards = {}
        for shard in sorted(set(weight_map.values())):
            if Path(shard).name != shard or shard in ("", ".."):
                raise CorruptModelError(f"{index_path}: {shard!r} is not the name of a file beside the index")
            if not os.path.exists(self.path / shard):  # unlike Path.exists, it has an answer for every name
                raise CorruptModelError(f"{self.path / shard}: the file is missing, {INDEX} names it; fetch it")
            shards[shard] = SafetensorsFile(self.path / shard)
        for name, shard in weight_map.items():
            if name not in shards[shard].shapes:
                raise CorruptModelError(
                    f"{self.path / shard}: the tensor {name} is missing, {INDEX} places it here; fetch both again"
                )
        for shard, file in shards.items():
            for name in file.shapes:
                other = shards[weight_map.get(name, shard)]
                if other is not file and not _same(file, other, name):
                    raise CorruptModelError(
                        f"{self.path / shard}: it holds the tensor {name} too, and not as {other.path.name}, where {INDEX} "
                        "places it; fetch both again"
                    )
        extra = {name: file for file in shards.values() for name in file.shapes if name not in weight_map}
        return extra | {name: shards[shard] for name, shard in weight_map.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{tensor name: shape} over all files of the folder."""
        return {name: file.shapes[name] for name, file in self._files.items()}

    def read(self, name: str) -> np.ndarray:
        """One tensor. KeyError for a name that no file holds."""
        return self._files[name].read(name)

    def where(self, name: str) -> Path:
        """The file that holds a tensor, or the folder when none does: for error messages."""
        return self._files[name].path if name in self._files else self.path

    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer.json with the chat template beside it. CorruptModelError when it is missing, broken or too large."""
        from tokenizers import Tokenizer as Backend

        path = self.path / "tokenizer.json"
        if not path.exists():
            raise CorruptModelError(
                f"{path}: the tokenizer is missing; fetch it, or use load_weights to load the model without one"
            )
        try:
            backend = Backend.from_file(str(path))
        except Exception as error:  # the library raises bare Exceptions
            raise CorruptModelError(f"{path}: not a readable tokenizer ({error}); fetch the file again") from None
        config_path = self.path / "tokenizer_config.json"
        config = read_json(config_path) if config_path.exists() else {}
        named = {name: value for name, value in config.items() if name.endswith("_token")}
        tokenizer = Tokenizer(
            backend,
            eos_token_ids=self.spec.eos_token_ids,
            chat_template=self._chat_template(config),
            special_tokens={  # a string, or (in older files) an object with its content; add_bos_token and the like are neither
                name: value
                for name, given in named.items()
                if isinstance(value := given.get("content") if isinstance(given, dict) else given, str)
            },
        )
        check_vocabulary(tokenizer, self.spec, path)
        return tokenizer

    def _chat_template(self, config: dict[str, Any]) -> str | None:
        path = self.path / "chat_template.jinja"
        try:
            if path.exists():
                return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptModelError(f"{path}: not a readable text file ({error}); fetch the file again") from None
        template = config.get("chat_template")
        if isinstance(template, list):  # several, by name
            named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
            template = named[0].get("template") if named else None
        if template is not None and not isinstance(template, str):
            path = self.path / "tokenizer_config.json"
            raise CorruptModelError(
                f"{path}: chat_template must be a text, found a {type(template).__name__}; fetch the file again"
            )
        return template
