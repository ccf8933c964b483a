from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from mini_engine.cli import main
from tests.generation.history_model import loaded


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command in this process; gives status, standard output, standard error. argparse leaves by SystemExit."""

    def call(*argv: str, stdin: bytes | None = None) -> SimpleNamespace:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = main(argv)
        except SystemExit as leave:
            status = leave.code
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return call


@pytest.fixture
def asked(monkeypatch):
    """Every model name loads the model whose next token is known; gives the names asked for."""
    names: list[tuple] = []

    def load_model(name, *, backend, device, dtype):
        names.append((name, backend))
        return loaded(backend)

    monkeypatch.setattr("mini_engine.models.load_model", load_model)
    monkeypatch.setattr("mini_engine.models.available_models", lambda: ["smollm2-135m", "tiny-gqa"])
    return names
