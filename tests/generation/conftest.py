from __future__ import annotations

from types import SimpleNamespace

import pytest

from mini_engine import LLM
from tests.generation import history_model


@pytest.fixture
def history():
    """The model whose next token is an exact function of its history, its oracle and its tokenizer."""
    return SimpleNamespace(
        model=history_model.HistoryModel,
        loaded=history_model.loaded,
        continuation=history_model.continuation,
        tokenizer=history_model.ByteTokenizer(),
        EOS=history_model.EOS,
    )


@pytest.fixture(params=["numpy", "torch"])
def llm(request, history):
    """An LLM of that model, on each backend."""
    return LLM(history.loaded(request.param))
