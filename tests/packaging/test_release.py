"""The bundle for a class: it works by itself, and no solution is in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.quality.test_links import wrong_links
from tools.lessons.build import sources
from tools.lessons.source import read_lesson
from tools.release import PARTS, content, main, write_bundle

ROOT = Path(__file__).resolve().parents[2]
LESSONS = [path.stem for path in sources(ROOT)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def bundle(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked course, away from the project."""
    folder = tmp_path_factory.mktemp("class")
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    (course,) = folder.iterdir()
    return course


def environment(bundle: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(bundle), "OMP_NUM_THREADS": "1", "COURSE_STRICT": "0"}


def test_the_same_files_make_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    assert write_bundle(tmp_path).read_bytes() == archive.read_bytes()
    entries = zipfile.ZipFile(archive).infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}


def test_it_holds_the_course_and_nothing_for_teachers(bundle: Path) -> None:
    for folder in ("lessons", "lessons/zh"):
        assert [path.stem for path in sorted((bundle / folder).glob("*.ipynb"))] == LESSONS
    tops = {path.name for path in bundle.iterdir()}
    assert {"Makefile", "README.md", "LICENSE", "environment.yml", "pyproject.toml", "data", "mini_engine"} <= tops
    assert not {"solutions", "tests", "CONTRIBUTING.md"} & tops
    assert [path.name for path in (bundle / "benchmarks").iterdir()] == ["results"]
    assert not (bundle / "docs/teaching").exists()


def test_every_answer_in_it_is_needed_by_a_check(bundle: Path) -> None:
    """Checks compare with answers and are tested on mutants made of them; what no module imports is left out of the project."""
    folder = bundle / "mini_engine" / "course" / "exercises"
    code = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    answers = [name for name in code if name.startswith("answers")]
    assert answers
    unused = [n for n in answers if not any(re.search(rf"\b{n}\b", text) for other, text in code.items() if other != n)]
    assert not unused


def lines_of(code: str) -> tuple[str, ...]:
    """The code without blank lines, comments and margin, so that a copy is known whatever its indentation."""
    lines = [line for line in textwrap.dedent(code).splitlines() if line.strip() and not line.strip().startswith("#")]
    return tuple(" ".join(line.split()) for line in textwrap.dedent("\n".join(lines)).splitlines())


def solutions_of(code: str) -> list[tuple[str, ...]]:
    """The text of each solution region of an exercise cell, or all of a cell that has none."""
    if "### BEGIN SOLUTION" not in code:
        return [lines_of(code)]
    return [lines_of(part.partition("### END SOLUTION")[0]) for part in code.split("### BEGIN SOLUTION")[1:]]


def contains(lines: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return any(lines[i : i + len(wanted)] == wanted for i in range(len(lines) - len(wanted) + 1))


def texts(bundle: Path) -> dict[str, tuple[str, ...]]:
    """Everything to read in the bundle that is not the engine's own code; of a notebook, its cells."""
    found = {}
    for path in sorted(bundle.rglob("*")):
        name = str(path.relative_to(bundle))
        if path.suffix == ".ipynb":
            cells = nbformat.read(path, as_version=4).cells
            found |= {f"{name} cell {i}": lines_of(cell.source) for i, cell in enumerate(cells)}
        elif path.suffix in {".py", ".md", ".txt", ".yml", ".toml"} and not name.startswith("mini_engine/"):
            found[name] = lines_of(path.read_text(encoding="utf-8"))
    return found


def test_no_solution_is_in_it(bundle: Path) -> None:
    readable = texts(bundle)
    regions = 0
    for source in sources(ROOT):
        for cell in read_lesson(source).cells:
            for wanted in solutions_of(cell.text) if cell.exercise else []:
                regions += 1
                assert wanted
                assert not [name for name, lines in readable.items() if contains(lines, wanted)], wanted
    assert regions >= len(LESSONS)
    assert not [path for path in bundle.rglob("*.*py*") if b"### BEGIN SOLUTION" in path.read_bytes()]


def test_a_solution_that_was_left_in_is_noticed() -> None:
    (wanted,) = solutions_of(
        "def f(x):\n    ### BEGIN SOLUTION\n    y = x\n\n    return y  * 2\n    ### END SOLUTION\n"
    )
    assert solutions_of("y = 1") == [("y = 1",)]
    assert contains(lines_of("text\n\n        y = x\n        return y * 2"), wanted)
    assert not contains(lines_of("y = x\nreturn y"), wanted)


def test_every_link_in_it_leads_somewhere(bundle: Path) -> None:
    pages = [*bundle.rglob("*.md"), *bundle.rglob("*.ipynb")]
    assert len(pages) > 2 * len(LESSONS)
    wrong = {str(page.relative_to(bundle)): wrong_links(page) for page in pages}
    assert not {page: links for page, links in wrong.items() if links}


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one file of every part of a bundle, committed."""
    folder = tmp_path / "a project"
    for part in PARTS:
        path = folder / part if (ROOT / part).is_file() else folder / part / "file.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# a\n")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "postBuild").chmod(0o755)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a")
    return folder


def test_what_can_be_executed_still_can(project: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(write_bundle(tmp_path, project)) as file:
        modes = {entry.filename.partition("/")[2]: entry.external_attr >> 16 for entry in file.infolist()}
    assert modes.pop("postBuild") == 0o755
    assert set(modes.values()) == {0o644}


def test_a_lesson_solved_in_its_place_is_not_handed_out(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "lessons" / "notes.md").write_text("git does not know it: it stays here")
    assert main([str(tmp_path / "dist")], project) == 0
    (project / "lessons" / "file.md").write_text("an answer")
    for command in (["add", "--all"], ["commit", "--quiet", "--message", "b"]):
        assert main([str(tmp_path / "other")], project) == 2
        assert "not as it was committed: lessons/file.md" in capsys.readouterr().err
        git(project, *command)
    assert not (tmp_path / "other").exists()
    (archive,) = (tmp_path / "dist").iterdir()
    assert not [name for name in zipfile.ZipFile(archive).namelist() if "notes" in name]


def test_a_copy_in_the_repository_of_somebody_else_is_refused(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(project / ".git")
    assert main([str(tmp_path / "dist")], project) == 2
    assert "the files that git knows" in capsys.readouterr().err
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "a")
    assert main([str(tmp_path / "dist")], project) == 2
    assert "it knows no .gitignore here" in capsys.readouterr().err
    assert not list((tmp_path / "dist").iterdir())


def test_a_bundle_that_cannot_be_made_leaves_the_old_one(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write_bundle(tmp_path, project).read_bytes()
    (project / "README.md").write_text("<!-- project -->\n")
    git(project, "commit", "--all", "--quiet", "--message", "half a mark")
    assert main([str(tmp_path)], project) == 2
    assert "pairs" in capsys.readouterr().err
    (archive,) = (path for path in tmp_path.iterdir() if path != project)
    assert archive.read_bytes() == before


def test_half_a_mark_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n\n<!-- project -->\nb\n<!-- /project -->\n\nc\n")
    assert content(page) == b"a\n\nc\n"
    page.write_text("a\n<!-- project -->\nb\n")
    with pytest.raises(ValueError, match="pairs"):
        content(page)


@pytest.mark.parametrize(
    "command", ["test", "test-all", "lint", "lessons", "mutants", "fuzz", "bench", "release", "teach"]
)
def test_a_command_for_the_whole_project_says_so(bundle: Path, command: str) -> None:
    made = subprocess.run(["make", command], cwd=bundle, capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert f"make {command} needs" in made.stderr
    assert not (bundle / ".venv").exists(), "something was set up before the command was refused"


def test_the_lab_finds_what_it_needs(bundle: Path, tmp_path: Path) -> None:
    """What `make lab` does, short of installing packages and opening a browser."""
    planned = subprocess.run(["make", "-n", "lab"], cwd=bundle, capture_output=True, text=True, check=True).stdout
    assert "pip install --quiet --editable ." in planned
    course = tmp_path / "course"
    shutil.copytree(bundle, course)
    lab = "import os, runpy; os.execv = lambda *a: print(a); runpy.run_path('tools/open_lab.py', run_name='__main__')"
    subprocess.run([sys.executable, "-c", lab], cwd=course, env=environment(course), check=True)
    assert len(list(course.glob("my_lessons/**/*.ipynb"))) == 2 * len(LESSONS)


def test_a_check_runs_from_it(bundle: Path, tmp_path: Path) -> None:
    code = """
        import mini_engine
        from mini_engine.course import check
        def causal_attention(q, k, v):
            return v
        check("01.causal_attention", causal_attention)
        print(mini_engine.__file__)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(bundle), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[no] 01.causal_attention")
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(bundle)


@pytest.mark.parametrize("name", [LESSONS[0], *[pytest.param(n, marks=pytest.mark.slow) for n in LESSONS[1:]]])
def test_a_lesson_runs_unsolved_from_it(bundle: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in environment(bundle).items():
        monkeypatch.setenv(key, value)
    notebook: Any = nbformat.read(bundle / "lessons" / f"{name}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import mini_engine; print(mini_engine.__file__)"))
    resources = {"metadata": {"path": str(bundle / "lessons")}}
    NotebookClient(notebook, kernel_name="python3", timeout=600, resources=resources).execute()
    (where,) = notebook.cells[-1].outputs
    assert Path(where.text.strip()).is_relative_to(bundle)
