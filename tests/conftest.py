"""Fixtures shared by every part, the choice of Triton's mode, which must come before anything imports Triton, and how
pytest deals out the tests and sums them up."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mini_engine.kernels._mode import choose_mode
from tests import part_table, side_by_side

# Nothing fails because a machine is busy: on top of hypothesis' own profile, which differs where CI is set.
settings.register_profile("untimed", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("untimed")

choose_mode()  # transformers imports Triton, which then cannot change its mode

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: the tests of Ctrl-C need it heard
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: side_by_side.rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return side_by_side.scheduler(config, log) if config.getvalue("dist") == "load" else None  # load is what -n means


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("by part, seconds of all workers together")
    for line in part_table.table(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def tiny_gqa():
    """The small trained model of the repository, with its tokenizer. It is committed, so its absence is an error."""
    from mini_engine.models import load_model

    return load_model("tiny-gqa")


@pytest.fixture(scope="session")
def tiny_mla():
    """The small trained model with latent attention, as committed as the other."""
    from mini_engine.models import load_model

    return load_model("tiny-mla")


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct. Skips where it is not installed, unless REQUIRE_MODEL=1."""
    from mini_engine.models import ModelNotFoundError, load_model

    try:
        return load_model("smollm2-135m")
    except ModelNotFoundError as missing:
        if os.environ.get("REQUIRE_MODEL") == "1":
            raise
        pytest.skip(str(missing))
