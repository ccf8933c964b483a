"""The `mini-engine` command. Nothing heavy is imported before a subcommand needs it, so that --help is quick.

Exit status: 0 done, 1 failed, 2 used wrongly, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from mini_engine import __version__, progress, simulate_command
from mini_engine.backends.kv_arrays import KV_CACHE_DTYPES
from mini_engine.sizing import command as size_command

DEFAULT_MODEL = "smollm2-135m"
SMALL_MODELS = FALLBACK_MODEL, _ = "tiny-gqa", "tiny-mla"


class UsageError(Exception):
    """The command was given something it cannot use."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. Every failure is one message on standard error."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 shows "?" instead of failing
    try:
        try:
            args = _parser().parse_args(argv)
            return args.run(args)
        finally:
            _drop(sys.stderr)
            sys.stdout.flush()  # now, and not at exit, where nothing can be done any more about output that fails
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        _drop(sys.stdout)
        return 141
    except UsageError as error:
        return _fail(str(error), 2)
    except ImportError as error:
        return _fail(f"{error}; `mini-engine doctor` says what is missing", 1)
    except OSError as error:
        _drop(sys.stdout)
        return _fail(str(error), 1)
    except (ValueError, RuntimeError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, 1)


def _open_closed_streams() -> None:
    """A standard stream that was closed before we began (`>&-`) is None: read and write the null device instead.

    In this order each takes the number it stands for, so that no model file is opened as standard output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 - open for as long as we run
            os.set_inheritable(stream.fileno(), True)  # pip, which `download` starts, wants three streams as well
            setattr(sys, name, stream)


def _fail(message: str, status: int) -> int:
    _say(f"mini-engine: {message}")
    return status


def _say(message: str) -> None:
    """A line on standard error. Whoever read our messages may have left first: that is no failure of the command."""
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Flush a stream, or send what it holds nowhere if that fails: Python would fail once more over it at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Parser(argparse.ArgumentParser):
    """Takes options by their whole name only: a slip must not pass for another option. Subcommands inherit it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mini-engine", description="An LLM inference engine, small enough to read.")
    parser.add_argument("--version", action="version", version=f"mini-engine {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[..., int], help: str, description: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=description)
        added.set_defaults(run=run)
        return added

    add = command("generate", run_generate, "continue a prompt", "Continue a prompt.").add_argument
    add("prompt", nargs="?", help="the text to continue; standard input when it is - or missing")
    add(
        "--model",
        metavar="NAME",
        help=f"{DEFAULT_MODEL} (default), {', '.join(SMALL_MODELS)}, a folder or a .gguf file",
    )
    add("--backend", choices=("torch", "numpy"), default="torch", help="what computes (default: torch)")
    add("--cache", choices=("paged", "contiguous", "none"), default="paged", help="the KV cache (default: paged)")
    add(
        "--kv-cache-dtype", choices=KV_CACHE_DTYPES, help="what the paged cache keeps (default: auto, the model's type)"
    )
    add("--max-tokens", type=int, default=64, metavar="N", help="stop after N tokens (default: 64)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 takes the most likely token (default)")
    add("--top-k", type=int, default=0, metavar="K", help="draw among the K most likely tokens; 0 means all (default)")
    add("--top-p", type=float, default=1.0, metavar="P", help="draw among the likeliest that reach P (default: 1)")
    add("--seed", type=int, metavar="N", help="the same seed gives the same text")
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be given several times")
    add("--chat", action="store_true", help="the prompt is a message to answer, not a text to continue")
    add("--json", action="store_true", help="print one JSON object at the end instead of the text as it comes")

    words = "size a model on a GPU", "What fits, how fast a step can be, and the arithmetic."
    size_command.add_arguments(command("size", size_command.run, *words))
    words = (
        "serve a trace on a simulated GPU",
        "Serve a trace with the engine's scheduler and cache on a simulated GPU.",
    )
    simulate_command.add_arguments(command("simulate", simulate_command.run, *words))

    download = command("download", run_download, "fetch a model", "Fetch a model.")
    names = (DEFAULT_MODEL, *SMALL_MODELS)  # the small ones are there already, and who asks is told so
    download.add_argument("model", choices=names, help=f"{DEFAULT_MODEL} is SmolLM2-135M-Instruct, 98 MB, Apache-2.0")

    words = "see which exercises pass", "See which exercises pass, as your notebooks were saved."
    progress.add_arguments(command("progress", progress.run, *words))

    words = "check the environment", "Check the environment and say what to do about each fault."
    doctor = command("doctor", run_doctor, *words)
    doctor.add_argument("--json", action="store_true", help="print the checks as JSON")
    return parser


# -- generate -------------------------------------------------------------------------------------------------------------


def run_generate(args: argparse.Namespace) -> int:
    """Print the continuation as it comes, and the speeds on standard error."""
    prompt = _read_prompt(args.prompt)
    from mini_engine.sampling import SamplingParams

    try:
        params = SamplingParams(
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
            max_tokens=args.max_tokens,
            stop=tuple(args.stop),
            seed=args.seed,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None

    from mini_engine.llm import LLM

    dtype = args.kv_cache_dtype
    if dtype not in (None, "auto") and (args.backend, args.cache) != ("torch", "paged"):
        raise UsageError(f"--kv-cache-dtype {dtype} is for --backend torch with --cache paged")
    name = _default_model() if args.model is None else args.model
    llm = LLM(name, args.backend, cache=args.cache, kv_cache_dtype=dtype)
    try:
        given: Any = llm.chat_token_ids([{"role": "user", "content": prompt}]) if args.chat else prompt
        stream = llm.stream(given, params)
    except ValueError as error:
        raise UsageError(str(error)) from None

    shown = ""
    try:
        for output in stream:
            text = output.outputs[0].text
            if not args.json:
                print(text[len(shown) :], end="", flush=True)
            shown = text
    finally:
        if not args.json:
            print(flush=True)

    stats, completion = llm.last_stats, output.outputs[0]
    if args.json:
        answer = {
            "model": name,
            "prompt": prompt,
            "text": completion.text,
            "token_ids": completion.token_ids,
            "finish_reason": completion.finish_reason,
            "num_prompt_tokens": len(output.prompt_token_ids),
            "num_output_tokens": len(completion.token_ids),
            "num_forwards": stats.num_forwards,
            "num_forward_tokens": stats.num_forward_tokens,
            "prompt_tokens_per_second": round(stats.prompt_tokens_per_second, 2),
            "output_tokens_per_second": round(stats.output_tokens_per_second, 2),
        }
        print(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        _say(
            f"prompt: {_speed(len(output.prompt_token_ids), stats.prompt_tokens_per_second)} · "
            f"output: {_speed(len(completion.token_ids), stats.output_tokens_per_second)} · {name}"
        )
    return 0


def _speed(count: int, rate: float) -> str:
    return f"{count} token{'' if count == 1 else 's'}" + (f", {rate:.1f} tok/s" if rate else "")


def _read_prompt(argument: str | None) -> str:
    if argument is None and sys.stdin.isatty():
        raise UsageError('give a prompt: mini-engine generate "The capital of France is"')
    if argument is None or argument == "-":
        source, raw = "standard input", sys.stdin.buffer.read()
    else:  # Python keeps the undecodable bytes of an argument as surrogates
        source, raw = "the prompt", argument.encode("utf-8", "surrogateescape")
    try:
        prompt = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}; convert it to UTF-8 first"
        ) from None
    if source == "standard input":
        prompt = prompt.removesuffix("\n").removesuffix("\r")  # the end of the last line is not part of the prompt
    if not prompt:
        raise UsageError(f"{source} is empty: give some text to continue")
    return prompt


def _default_model() -> str:
    from mini_engine.models import available_models

    if DEFAULT_MODEL in available_models():
        return DEFAULT_MODEL
    _say(
        f"mini-engine: the real model is not installed; `mini-engine download {DEFAULT_MODEL}` fetches it (98 MB). "
        f"Using {FALLBACK_MODEL}, a very small one: expect words, not sense."
    )
    return FALLBACK_MODEL


# -- download and doctor ----------------------------------------------------------------------------------------------------


def run_download(args: argparse.Namespace) -> int:
    """Fetch a model and print where it is. Exit status 0; errors are told by `main`."""
    from mini_engine.download import download

    print(download(args.model))
    return 0


def run_doctor(args: argparse.Namespace) -> int:
    """Print what was found, as text or JSON. Exit status 1 when there is a fault."""
    from mini_engine.doctor import examine, report

    checks = examine()
    print(report(checks, as_json=args.json))
    return 1 if any(check.status == "fault" for check in checks) else 0
