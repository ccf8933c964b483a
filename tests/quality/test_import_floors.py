"""Who may import whom: a module uses its own floor of the house and those below it, and integers stay among themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2] / "mini_engine"
FLOORS = [
    {"units", "arguments", "data_files", "catalog", "explain"},
    {"sampling", "stopping", "metrics", "workload", "roofline", "geometry", "attention", "config", "outputs"},
    {"kernels", "models", "cache"},
    {"backends", "scheduling"},
    {"engine", "generation", "beam_search", "sequential"},
    {"llm", "simulator", "engine_options", "kv_quality", "sizing", "option_types"},
    {"course", "cli", "simulate_command", "progress", "doctor", "download"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(path for path in HOUSE.rglob("*.py") if path.parent != HOUSE or not path.name.startswith("__"))


def _imports(path: Path) -> Iterator[str]:
    """Dotted names, those of imports inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{path}: a relative import"
            if node.module == "mini_engine":
                yield from (f"mini_engine.{alias.name}" for alias in node.names)
            else:
                yield node.module


def _room(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def test_every_room_has_a_floor() -> None:
    assert {_room(path) for path in MODULES} == set(FLOOR)


@pytest.mark.parametrize("room", sorted(FLOOR))
def test_imports_go_down(room: str) -> None:
    wrong = []
    for path in MODULES:
        if _room(path) != room:
            continue
        for name in _imports(path):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if top == "mini_engine" and other in FLOOR and FLOOR[other] > FLOOR[room]:
                wrong.append(f"{path.relative_to(HOUSE)} imports {name}")
    assert not wrong


@pytest.mark.parametrize("room", ["cache", "scheduling"])
def test_integers_only(room: str) -> None:
    """One scheduler drives every backend and the simulator because no array ever enters it."""
    for path in MODULES:
        if _room(path) == room:
            assert not {"numpy", "torch", "triton"} & {name.partition(".")[0] for name in _imports(path)}, path


def test_the_house_on_paper_is_the_house() -> None:
    """The table of floors in docs/architecture.md names every room of the package, and no other."""
    page = (HOUSE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for number, rooms in enumerate(FLOORS):
        row = re.search(rf"^\| {number} \| (.*?) \|", page, flags=re.M)
        assert row is not None, f"no row for floor {number}"
        assert {name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", row[1])} == rooms
