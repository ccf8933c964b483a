"""The build itself, on a small lesson: what it writes, that it writes it twice the same, and what nbval says to the result."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mini_engine.course import check, exercises, figures, predict
from tests.notebooks.nbval_runs import HERE, SANITIZE, Cells, failures, run_nbval, sanitized
from tools.build_lessons import main
from tools.lessons.notebook import FOLDERS, cell_ids
from tools.lessons.source import Lesson, read_lesson

NAME = "98_fixture"


def read(root: Path, folder: str) -> Any:
    return nbformat.read(root / folder / f"{NAME}.ipynb", as_version=4)


def tree(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in sorted(root.glob("**/*.ipynb"))}


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: Any) -> str:
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def edit(root: Path, old: str, new: str) -> None:
    source = root / "solutions" / f"{NAME}.py"
    text = source.read_text(encoding="utf-8")
    assert old in text
    source.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_four_notebooks(built_fixture: Path) -> None:
    assert set(tree(built_fixture)) == {f"{folder}/{NAME}.ipynb" for folder in FOLDERS.values()}
    for folder in FOLDERS.values():
        notebook = read(built_fixture, folder)
        nbformat.validate(notebook)
        assert "widgets" not in notebook.metadata
        assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, 13))
    assert len({tuple(cell["id"] for cell in read(built_fixture, folder).cells) for folder in FOLDERS.values()}) == 1


def test_languages_and_links(built_fixture: Path) -> None:
    english, chinese = read(built_fixture, "lessons"), read(built_fixture, "lessons/zh")
    assert (
        "[the page](../docs/page.md#top), [this lesson](98_fixture.ipynb)\nand [elsewhere](https://example.org/a)"
        in english.cells[0].source
    )
    assert (
        "[页面](../../docs/page.md#top)、[本课](98_fixture.ipynb)\n和[别处](https://example.org/a)"
        in chinese.cells[0].source
    )
    assert english.cells[0].metadata.tags == chinese.cells[0].metadata.tags == ["goals"]
    for ours, theirs in zip(english.cells, chinese.cells, strict=True):
        assert ours.cell_type == theirs.cell_type
        if ours.cell_type == "code":
            assert ours == theirs


def test_solutions_are_cut_and_checks_marked(built_fixture: Path) -> None:
    solved, unsolved = code_cells(read(built_fixture, "solutions")), code_cells(read(built_fixture, "lessons"))
    assert "return n + n" in solved[2].source
    assert "assert double(21) == 42" in solved[3].source
    assert (
        unsolved[2].source
        == 'def double(n: int) -> int:\n    """Twice n."""\n    # about 1 line\n    raise NotImplementedError'
    )
    assert unsolved[3].source == 'double = check("98.double", double)'
    assert unsolved[4].source.endswith("    def add(self, n: int) -> None:\n        raise NotImplementedError")
    solution = {
        "grade": False,
        "grade_id": "98_double",
        "locked": False,
        "schema_version": 3,
        "solution": True,
        "task": False,
    }
    test = {
        "grade": True,
        "grade_id": "test_98_double",
        "locked": True,
        "points": 2,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    for cells in (solved, unsolved):
        assert cells[2].metadata.nbgrader == solution
        assert cells[3].metadata.nbgrader == test


def test_outputs(built_fixture: Path) -> None:
    solved, unsolved = code_cells(read(built_fixture, "solutions")), code_cells(read(built_fixture, "lessons"))
    assert text_of(unsolved[1]).startswith("[predict] 98.six")
    assert [text_of(unsolved[i])[:6] for i in (3, 5)] == ["[todo]"] * 2
    assert [text_of(solved[i])[:4] for i in (3, 5)] == ["[ok]"] * 2
    assert text_of(unsolved[6]) == text_of(solved[6]) == "[0, 2, 4, 6]"
    panel, picture = unsolved[-2].outputs[0], unsolved[-1].outputs[0]
    assert panel.data["text/plain"] == picture.data["text/plain"] == "batch 8, 256 tokens: 2,048 in all"
    assert panel.data["text/html"].endswith(picture.data["text/html"])
    assert 'alt="batch 8, 256 tokens: 2,048 in all"' in picture.data["text/html"]
    assert re.fullmatch("[0-9a-f]{32}", panel.data["application/vnd.jupyter.widget-view+json"]["model_id"])


def test_rebuild_changes_no_byte(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(lesson)
    assert main([], lesson) == 0
    assert capsys.readouterr().out == ""
    assert tree(lesson) == before
    assert main(["--refresh", "98"], lesson) == 0
    after = tree(lesson)
    timing = [
        number
        for number, cell in enumerate(code_cells(read(lesson, "lessons")))
        if "nbval-ignore-output" in cell.metadata.get("tags", [])
    ]
    for path, text in after.items():
        old, new = (code_cells(nbformat.reads(t, as_version=4)) for t in (before[path], text))
        assert [n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b] == timing


def test_check_says_what_differs(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], lesson) == 0
    path = lesson / "lessons" / f"{NAME}.ipynb"
    stored = path.read_text(encoding="utf-8")
    (png,) = re.findall('base64,([^"]+)"', read(lesson, "lessons").cells[-1].outputs[0].data["text/html"])
    path.write_text(stored.replace(png, "AAAA").replace("[0, 2, 4, 6]", "[0, 2, 4, 7]"), encoding="utf-8")
    (lesson / "lessons" / "97_gone.ipynb").write_text(stored, encoding="utf-8")
    (lesson / "solutions" / "zh" / f"{NAME}.ipynb").unlink()
    capsys.readouterr()
    before = tree(lesson)
    assert main(["--check"], lesson) == 1
    said = capsys.readouterr().out
    assert re.search(r"^- +\"\[0, 2, 4, 7\]\"$", said, re.MULTILINE)
    assert re.search(r"^\+ +\"\[0, 2, 4, 6\]\"$", said, re.MULTILINE)
    assert "97_gone.ipynb: has no source" in said
    assert f"solutions/zh/{NAME}.ipynb: not built yet" in said
    assert "AAAA" not in said, "the bytes of a picture are not compared"
    assert len(said.splitlines()) < 40
    assert tree(lesson) == before, "--check writes nothing"
    assert main([], lesson) == 0
    assert "97_gone" not in str(tree(lesson))


def test_cell_that_raises_is_shown_and_nothing_is_written(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(lesson)
    edit(lesson, "[double(n) for n in range(4)]", "[double(n) / 0 for n in range(4)]")
    assert main([], lesson) == 2
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "double(n) / 0" in said
    assert tree(lesson) == before


def test_wrong_solution_does_not_build(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(lesson, "return n + n", "return n + 1")
    assert main([], lesson) == 2
    assert "CheckFailed" in capsys.readouterr().err


def test_stale_translation_does_not_build(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(lesson, "# ## Predict", "# ## Guess")
    assert main([], lesson) == 2
    assert "changed since it was translated" in capsys.readouterr().err
    assert main(["--stamp", "98"], lesson) == 0
    assert read_lesson(lesson / "solutions" / f"{NAME}.py").translated


def test_unknown_lesson(lesson: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["12"], lesson) == 2
    assert NAME in capsys.readouterr().err


def test_untranslated_lesson_has_no_chinese_notebooks(lesson: Path) -> None:
    source = lesson / "solutions" / f"{NAME}.py"
    source.write_text(
        "# ---\n# jupyter:\n#   course:\n#     translated: false\n# ---\n\n" + source.read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    assert main([], lesson) == 0
    assert set(tree(lesson)) == {f"lessons/{NAME}.ipynb", f"solutions/{NAME}.ipynb"}


def test_inserting_a_cell_moves_no_other_id(built_fixture: Path) -> None:
    lesson = read_lesson(built_fixture / "solutions" / f"{NAME}.py")
    ids = cell_ids(lesson)
    assert len(set(ids)) == len(ids), "two cells of equal text have ids of their own"
    new = read_lesson(built_fixture / "solutions" / f"{NAME}.py").cells
    new[0].text += " Changed."
    longer = Lesson(lesson.name, [*lesson.cells[:3], new[0], *lesson.cells[3:]])
    assert [i for i in cell_ids(longer) if i in ids] == ids


def filled_in(root: Path, name: str, answer: str) -> Path:
    """A learner's notebook: the unsolved one, its outputs as stored, with the exercises filled in."""
    notebook, solved = read(root, "lessons"), read(root, "solutions")
    for ours, theirs in zip(notebook.cells, solved.cells, strict=True):
        if ours.cell_type == "code" and ours.metadata.get("nbgrader", {}).get("solution"):
            ours.source = theirs.source.replace("return n + n", answer)
    nbformat.write(notebook, root / "lessons" / f"{name}.ipynb")
    return root / "lessons" / f"{name}.ipynb"


@pytest.fixture(scope="module")
def nbval(built_fixture: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Cells]:
    """What every cell did under nbval, by (notebook, strict): all runs of this file in two processes."""
    root = Path(shutil.copytree(built_fixture, tmp_path_factory.mktemp("nbval") / "root"))
    paths = {
        "unsolved": root / "lessons" / f"{NAME}.ipynb",
        "solutions": root / "solutions" / f"{NAME}.ipynb",
        "right": filled_in(root, "right", "return n + n"),
        "wrong": filled_in(root, "wrong", "return n + 1"),
    }
    with ThreadPoolExecutor(2) as pool:
        lenient = pool.submit(run_nbval, [paths[name] for name in ("unsolved", "right", "wrong")], strict=False)
        strict = pool.submit(run_nbval, [paths[name] for name in ("unsolved", "solutions", "wrong")], strict=True)
    names = {path: name for name, path in paths.items()}
    return {
        (names[p], how): cells for how, run in ((False, lenient), (True, strict)) for p, cells in run.result().items()
    }


def test_stored_outputs_are_compared_and_right(nbval: dict[tuple[str, bool], Cells]) -> None:
    assert failures(nbval["unsolved", False]) == ""
    assert failures(nbval["solutions", True]) == ""


def test_solved_copy_compares_equal_to_the_unsolved_outputs(nbval: dict[tuple[str, bool], Cells]) -> None:
    assert failures(nbval["right", False]) == ""


def test_only_strict_sees_a_wrong_solution(nbval: dict[tuple[str, bool], Cells]) -> None:
    assert failures(nbval["wrong", False]) == "", "check() goes on with the reference"
    assert [n for n, cell in enumerate(nbval["wrong", True]) if "CheckFailed" in cell["message"]] == [3]


def test_stubs_fail_under_strict_at_their_checks(nbval: dict[tuple[str, bool], Cells]) -> None:
    cells = nbval["unsolved", True]
    assert [n for n, cell in enumerate(cells) if cell["outcome"] == "failed"] == [3, 5, 6]
    assert [n for n, cell in enumerate(cells) if "CheckFailed" in cell["message"]] == [3, 5]


def test_sanitize_rule_covers_all_that_check_and_predict_print(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COURSE_STRICT", raising=False)
    monkeypatch.setattr(exercises, "__path__", [*exercises.__path__, str(HERE / "fixture" / "exercises")])

    def noisy(n: int) -> int:
        print("a\n\n[x] b\n" * 50)
        return 2 * n

    def stub(n: int) -> int:
        raise NotImplementedError

    for candidate in (noisy, stub, lambda n: 2 * n, lambda n: n, lambda n: 1 // 0, None):
        check("98.double", candidate)
        predict("98.six")
    for value in (6, 9, 3, "x", None):
        predict("98.six", value)
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 30
    assert sanitized(text) == "[check]\n"
    assert sanitized(f"before\n{text}after\n") == "before\n[check]\nafter\n"


def test_sanitize_rules_leave_out_a_picture_and_keep_its_words() -> None:
    assert sanitized(figures.img(b"one", "4 blocks")) == sanitized(figures.img(b"other", "4 blocks"))
    assert sanitized(figures.img(b"one", "4 blocks")) != sanitized(figures.img(b"one", "5 blocks"))
    assert sanitized('src="data:image/svg+xml,%3Csvg"') == 'src="data:image/svg+xml,%3Csvg"'
    assert len(SANITIZE) == 2, "each rule hides real regressions"
