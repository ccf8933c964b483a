"""The teacher's pages say what the lessons say today."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools import teaching
from tools.lessons.build import sources
from tools.lessons.source import read_lesson

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_are_up_to_date(capsys) -> None:
    assert teaching.main(["--check"]) == 0, f"run python tools/teaching.py: {capsys.readouterr().out}"


def test_every_point_of_a_lesson_is_in_its_rubric() -> None:
    for path in sources(ROOT):
        lesson = read_lesson(path)
        points = sum(cell.points for cell in lesson.cells)
        assert sum(task.points for task in teaching.tasks(lesson)) == points > 0
        assert f"| all | {points} |" in teaching.page(lesson)


def test_every_wrong_answer_is_on_the_page() -> None:
    for path in sources(ROOT):
        lesson = read_lesson(path)
        page = teaching.page(lesson)
        for task in teaching.tasks(lesson):
            for exercise in task.exercises:
                for wrong in getattr(exercise, "bank", exercise).__dict__.get("wrong", exercise.mutants):
                    name = wrong if isinstance(wrong, str) else wrong.name.replace("_", " ")
                    assert f"| {name} |" in page, (exercise.id, name)


def test_a_page_that_is_out_of_date_is_named(tmp_path, capsys) -> None:
    for name in ("solutions", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.ipynb", "images"))
    page = tmp_path / "docs" / "teaching" / "01.md"
    page.write_text("old")
    assert teaching.main(["--check"], tmp_path) == 1
    assert "docs/teaching/01.md" in capsys.readouterr().out.splitlines()
    assert page.read_text() == "old"
    assert teaching.main([], tmp_path) == 0
    assert page.read_text() != "old"
    assert teaching.main(["--check"], tmp_path) == 0
