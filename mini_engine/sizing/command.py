"""`mini-engine size`: what a model's KV cache takes on a GPU, how many requests fit, how fast a step can be, why."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import textwrap
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from mini_engine import arguments, option_types
from mini_engine.catalog import GPUSpec, ModelSpec, get_gpu, get_model, list_gpus, list_models
from mini_engine.data_files import data_dir
from mini_engine.sizing.report import answer_text, as_json, as_text, title
from mini_engine.sizing.result import CacheSizing, Sizing
from mini_engine.sizing.sizing import parameters, size, size_cache, uncounted
from mini_engine.units import DTYPE_BYTES, GB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command. Each is checked as it is read, so that an error names the option."""
    add = parser.add_argument
    add(
        "--model",
        metavar="NAME|PATH",
        help="a model of the table, tiny-gqa, tiny-mla, or the path of any config.json or of its folder",
    )
    add("--gpu", default="h100-sxm", metavar="NAME", help="a GPU of the table (default: %(default)s)")
    add(
        "--tp",
        type=option_types.count,
        default=1,
        metavar="N",
        help="GPUs that share the model by tensor parallelism (default: 1)",
    )
    add(
        "--context", type=option_types.count, default=8192, metavar="TOKENS", help="tokens per sequence (default: 8192)"
    )
    add("--batch", type=option_types.count, default=1, metavar="N", help="sequences that decode together (default: 1)")
    add(
        "--kv-dtype",
        type=option_types.dtype,
        default="bf16",
        metavar="DTYPE",
        help=f"of the cache: {', '.join(DTYPE_BYTES)} (default: bf16)",
    )
    add("--dtype", type=option_types.dtype, default="bf16", metavar="DTYPE", help="of the weights (default: bf16)")
    add(
        "--util",
        type=option_types.share,
        default=Fraction(1),
        metavar="SHARE",
        help="of the card's memory the engine may use, such as 0.9 (default: 1)",
    )
    add(
        "--overhead-gb",
        type=option_types.gigabytes,
        default=2 * GB,
        metavar="GB",
        help="activations and runtime per GPU, in 10^9 bytes (default: 2)",
    )
    add("--block", type=option_types.count, default=16, metavar="TOKENS", help="tokens per cache block (default: 16)")
    add(
        "--memory",
        type=_memory,
        default="nominal",
        metavar="nominal|reported",
        help="the size on the box, or what the driver reports (default: nominal)",
    )
    add(
        "--params",
        type=_parameters,
        metavar="N",
        help="number of parameters, such as 80e9, where the configuration does not tell",
    )
    add(
        "--active-params",
        type=_parameters,
        metavar="N",
        help="of them used per token, such as 3e9 (default: all but the experts that a token does not use)",
    )
    add("--list", action="store_true", help="print the names of the models and GPUs in the tables, and nothing else")
    add("--json", action="store_true", help="print one JSON object")
    add(
        "--why",
        type=_question,
        nargs="*",
        metavar="N",
        help="answer twelve questions with this model's numbers; --why 7 2 prints answers 7 and 2 only",
    )


def run(args: argparse.Namespace) -> int:
    """Print the sizing. ValueError or FileNotFoundError says what is wrong with an argument."""
    if args.list:
        for what, names in (("models", list_models()), ("GPUs", list_gpus())):
            print(textwrap.fill(f"{what}: {', '.join(names)}", 118, subsequent_indent="  ", break_on_hyphens=False))
        return 0
    if args.model is None:
        raise ValueError("--model is missing: give a name (--list prints them), or the path of a config.json")
    sizing = _sized(args)
    wanted = args.why or ([] if args.why is None else list(range(1, 13)))
    answers: list[tuple[str, str]] = []
    if wanted:
        from mini_engine.sizing import why

        if not isinstance(sizing, Sizing):
            raise ValueError(f"--why: {uncounted(sizing.model)}: {GIVE_THEM}")
        answers = why.answers(sizing, wanted)
    if args.json:
        json.dump(as_json(sizing, answers), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
        print()
    elif args.why:
        print("\n\n".join([title(sizing), *(answer_text(n, *each) for n, each in zip(wanted, answers, strict=True))]))
    else:
        print(as_text(sizing, answers))
    return 0


GIVE_THEM = "give them with --params 80e9"


def _sized(args: argparse.Namespace) -> CacheSizing:
    """All of the sizing, or what can be said of the K/V alone, with a note that says how to get the rest."""
    model, gpu = find_model(args.model), find_gpu(args.gpu)
    deployment = {
        name: getattr(args, name) for name in ("tp", "context", "batch", "kv_dtype", "dtype", "util", "block", "memory")
    }
    deployment["overhead"] = args.overhead_gb
    if args.active_params and not args.params:
        raise ValueError(f"--active-params {args.active_params} needs --params too")
    reason = uncounted(model)
    if args.params is None and reason:
        sizing = size_cache(model, gpu, **deployment)
        missing = f"{reason}, so what needs them is left out, what fits and how fast: {GIVE_THEM}"
        alone = ("the K/V of the batch is more than a card holds, whatever the weights",) if sizing.too_large else ()
        return dataclasses.replace(sizing, notes=(missing, *alone, *sizing.notes))
    return size(model, gpu, **deployment, num_params=args.params, num_active_params=args.active_params)


def find_model(name: str) -> ModelSpec:
    """A model by the path of its config.json or folder, by its name in the table, or one of those that come along
    (tiny-gqa, tiny-mla). ValueError lists near names.
    """
    try:
        found = Path(os.path.expanduser(name)).exists()
    except (OSError, ValueError):  # too long for a path, or with a character that no path has
        found = False
    if found or name.endswith(".json") or "/" in name or "\\" in name or name.startswith("~"):
        try:
            return ModelSpec.from_hf_config(name)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}{_in_the_table(name)}") from None
    small = data_dir() / "models" / name
    return ModelSpec.from_hf_config(small) if os.path.exists(small / "config.json") else _known(get_model, name)


def find_gpu(name: str) -> GPUSpec:
    """A GPU by its name in the table. ValueError lists near names."""
    return _known(get_gpu, name)


def _in_the_table(name: str) -> str:
    """A hint for the name of a repository, owner/model, whose model the table holds; "" otherwise."""
    try:
        return f"; the table has {get_model(name.rstrip('/').rpartition('/')[2]).name}"
    except KeyError:
        return ""


def _known(find: Callable[[str], Any], name: str) -> Any:
    try:
        return find(name)
    except KeyError as error:
        told = error.args[0]
        for function in ("list_models()", "list_gpus()"):
            told = told.replace(function, "mini-engine size --list")
        raise ValueError(told) from None


_memory = option_types.one_of("nominal", "reported")
_parameters = option_types.option(lambda text: parameters("value", text))
_question = option_types.option(lambda text: arguments.count("value", option_types.as_integer(text), limit=12))
