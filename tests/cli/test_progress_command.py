"""mini-engine progress: what the saved notebooks say, and nothing more."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mini_engine.cli import main
from mini_engine.course.check import check
from mini_engine.progress import read_progress

ROOT = Path(__file__).resolve().parents[2]
LESSON = ROOT / "lessons" / "05_kv_quantization.ipynb"


def write(path: Path, *cells: tuple[str, str, int]) -> None:
    """A notebook whose check cells have this source, printed text and points."""
    made = [
        {
            "cell_type": "code",
            "metadata": {"nbgrader": {"grade": True, "grade_id": "test_x", "points": points}},
            "source": source,
            "outputs": [{"output_type": "stream", "name": "stdout", "text": text}] if text else [],
        }
        for source, text, points in cells
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "metadata": {}, "source": "x"}, *made]}))


def said(id_: str, candidate: object, capsys: pytest.CaptureFixture[str]) -> str:
    """What the real check prints."""
    check(id_, candidate)
    return capsys.readouterr().out


def test_it_counts_what_the_checks_print(tmp_path, capsys):
    right = said("01.token_forwards", lambda n, m, cached: n + m - 1 if cached else m * n + m * (m - 1) // 2, capsys)
    wrong = said("01.token_forwards", lambda n, m, cached: 0, capsys)
    assert right.startswith("[ok]")
    assert wrong.startswith("[no]")
    source = 'f = check("01.token_forwards", f)'
    write(tmp_path / "01_x.ipynb", (source, right, 2), (source, wrong, 3), (source, "", 4))
    assert [(cell.exercise, cell.status) for cell in read_progress(tmp_path / "01_x.ipynb")] == [
        ("01.token_forwards", "ok"), ("01.token_forwards", "no"), ("01.token_forwards", "not run")
    ]  # fmt: skip
    assert main(["progress", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "01_x   2 of  9 points  [ok] [no] [  ]"
    assert lines[1] == "1 of 3 exercises pass; not right yet: 01.token_forwards"


def test_a_cell_with_two_checks_passes_when_both_do(tmp_path):
    write(tmp_path / "05_x.ipynb", ("", "[ok] 05.quantize  a\n[no] 05.dequantize  b\n", 3))
    (cell,) = read_progress(tmp_path / "05_x.ipynb")
    assert (cell.exercise, cell.status) == ("05.quantize 05.dequantize", "no")


def test_open_lessons_are_open_and_solved_ones_are_solved(tmp_path, capsys):
    for folder, words in (("lessons", "0 of"), ("solutions", "4 of 4")):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=lambda _, names: [n for n in names if n != LESSON.name]
        )
        assert main(["progress", str(tmp_path / folder)]) == 0
        assert f"{words}" in capsys.readouterr().out.splitlines()[1]


def test_what_is_no_notebook_is_named_and_left_out(tmp_path, capsys):
    write(tmp_path / "01_x.ipynb", ("", "[ok] 01.a  a\n", 1))
    (tmp_path / "02_y.ipynb").write_text("<<<<<<< HEAD")
    (tmp_path / "03_z.ipynb").write_text("[]")
    assert main(["progress", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "1 of 1 exercises pass" in said.out
    assert said.err.count("left out: ") == 2
    assert "02_y.ipynb" in said.err
    assert "03_z.ipynb" in said.err
    assert main(["progress", str(tmp_path), "--json"]) == 1
    assert list(json.loads(capsys.readouterr().out)) == ["01_x"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"worksheets": [{"cells": []}], "nbformat": 3}',
        '{"cells": [{"metadata": {"nbgrader": {"grade": true, "grade_id": "x", "points": 1e400}}, "source": "", "outputs": []}]}',
        '{"cells": [{"metadata": {"nbgrader": {"grade": true, "grade_id": 5}}, "source": "", "outputs": []}]}',
    ],
    ids=["empty", "deep", "version 3", "points", "id"],
)
def test_one_broken_notebook_is_left_out_even_alone(text, tmp_path, capsys):
    (tmp_path / "01_x y.ipynb").write_text(text)
    assert main(["progress", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "0 of 0 exercises pass" in said.out
    assert "01_x y.ipynb is not a notebook" in said.err


def test_what_is_no_file_is_left_out(tmp_path, capsys):
    write(tmp_path / "01_x.ipynb", ("", "[ok] 01.a  a\n", 1))
    (tmp_path / "02_loop.ipynb").symlink_to(tmp_path / "02_loop.ipynb")
    (tmp_path / "03_nowhere.ipynb").symlink_to(tmp_path / "nowhere")
    (tmp_path / "04_folder.ipynb").mkdir()
    os.mkfifo(tmp_path / "05_pipe.ipynb")
    assert main(["progress", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "1 of 1 exercises pass" in said.out
    assert said.err.count("left out: ") == 4


def test_cells_without_metadata_are_no_checks(tmp_path, capsys):
    cells = [{"source": "", "outputs": []}, {"metadata": {"nbgrader": None}, "source": "", "outputs": []}]
    (tmp_path / "01_x.ipynb").write_text(json.dumps({"cells": cells}))
    assert main(["progress", str(tmp_path)]) == 0


def test_a_folder_without_lessons_says_what_to_do(tmp_path, capsys):
    assert main(["progress", str(tmp_path)]) == 1
    assert "make lab" in capsys.readouterr().err


def test_without_a_folder_it_never_counts_the_solutions(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, status in (("solutions", "ok"), ("lessons", "todo"), ("my_lessons", "no")):
        write(tmp_path / folder / "01_x.ipynb", ("", f"[{status}] 01.a  a\n", 1))
    shown = []
    for folder in ("my_lessons", "lessons"):
        assert main(["progress", "--json"]) == 0
        shown += [cell["status"] for cells in json.loads(capsys.readouterr().out).values() for cell in cells]
        shutil.rmtree(folder)
    assert shown == ["no", "todo"]


def test_one_notebook_may_be_named(tmp_path, capsys):
    write(tmp_path / "my copy.ipynb", ("", "[ok] 01.a  a\n", 1))
    assert main(["progress", str(tmp_path / "my copy.ipynb")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "my copy   1 of  1 points  [ok]"
    (tmp_path / "notes.md").write_text("x")
    assert main(["progress", str(tmp_path / "notes.md")]) == 1
    assert "notes.md is not a notebook" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("english", "chinese", "shown"),
    [
        ("todo", "todo", ["01_x"]),
        ("todo", "no", ["zh/01_x"]),
        ("ok", "todo", ["01_x"]),
        ("ok", "ok", ["01_x", "zh/01_x"]),
    ],
)
def test_a_twin_that_nobody_works_in_is_not_shown(english, chinese, shown, tmp_path, capsys):
    write(tmp_path / "01_x.ipynb", ("", f"[{english}] 01.a  a\n", 1))
    write(tmp_path / "zh" / "01_x.ipynb", ("", f"[{chinese}] 01.a  a\n", 1))
    assert main(["progress", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-2]] == shown
    shutil.copytree(tmp_path, tmp_path / "deeper")
    assert main(["progress", str(tmp_path)]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-2]]
    assert names == sorted(shown + [f"deeper/{name}" for name in shown])


def test_json_has_every_exercise(tmp_path, capsys):
    write(tmp_path / "zh" / "01_x.ipynb", ("", "[todo] 01.a  a\n", 1))
    assert main(["progress", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"zh/01_x": [{"exercise": "01.a", "status": "todo", "points": 1}]}
