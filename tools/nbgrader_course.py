"""Make an nbgrader course of the lessons.

python tools/nbgrader_course.py FOLDER          every lesson as an assignment lessonNN, in English
python tools/nbgrader_course.py FOLDER 01 02    these
python tools/nbgrader_course.py FOLDER --zh     in Chinese

Then, in FOLDER: nbgrader generate_assignment lesson01, collect what comes back into submitted/NAME/lesson01/, nbgrader autograde
lesson01, nbgrader generate_feedback lesson01, nbgrader export. docs/teaching/grading.md walks through it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.lessons.build import sources  # noqa: E402
from tools.lessons.notebook import make_notebook  # noqa: E402
from tools.lessons.regions import STUB  # noqa: E402
from tools.lessons.source import Lesson, read_lesson  # noqa: E402

CONFIG = f"""c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "mini_engine"
c.ClearSolutions.code_stub = {{"python": {STUB!r}}}
c.ExecutePreprocessor.timeout = 600  # seconds a cell

from nbgrader.preprocessors import NbGraderPreprocessor


class ForgetCopies(NbGraderPreprocessor):
    # A cell that a student has copied bears no grade. As nbgrader leaves it, it ends the grading of everybody.

    def preprocess_cell(self, cell, resources, index):
        if cell.metadata.get("nbgrader") == {{}}:
            del cell.metadata["nbgrader"]
        return cell, resources


c.Autograde.sanitize_preprocessors.insert(2, ForgetCopies)  # behind DeduplicateIds, which empties them
"""
# Put before each check when it is graded: a submission may have bound these names to something else, here or in the package,
# told `check` what it said before, or asked it not to be strict.
FRESH = """### BEGIN HIDDEN TESTS
import os, sys
os.environ["COURSE_STRICT"] = "1"
[sys.modules.pop("mini_engine.course" + part, None) for part in ("", ".check", ".bugs_caught")]
from mini_engine.course import bugs_caught, check
### END HIDDEN TESTS
"""


def source_notebook(lesson: Lesson, lang: str = "en") -> nbformat.NotebookNode:
    """The solved lesson without outputs, as nbgrader's instructor version."""
    notebook = make_notebook(lesson, solved=True, lang=lang, has_notebook=lambda path: True)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = FRESH + cell.source
    return notebook


def write_course(folder: Path, numbers: list[str], lang: str = "en", root: Path = ROOT) -> list[Path]:
    """Write FOLDER/nbgrader_config.py and FOLDER/source/lessonNN/NN_name.ipynb; returns the notebooks.

    FileExistsError, and nothing written, when an assignment is there already: nbgrader's database knows its cells.
    """
    lessons = [read_lesson(path) for path in sources(root, numbers)]
    if lang == "zh" and (open_ones := [lesson.name for lesson in lessons if not lesson.translated]):
        raise ValueError(f"there is no Chinese {', '.join(open_ones)} yet: name the lessons that you want")
    made = {folder / "source" / f"lesson{lesson.name[:2]}" / f"{lesson.name}.ipynb": lesson for lesson in lessons}
    if there := [str(path) for path in made if path.exists()]:
        raise FileExistsError(f"{there[0]} is there already: choose another folder, or name the lessons that are new")
    for path, lesson in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(source_notebook(lesson, lang), path)
    config = folder / "nbgrader_config.py"
    if not config.exists():
        config.write_text(CONFIG, encoding="utf-8")
    return list(made)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 written, 2 refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the course goes")
    parser.add_argument("lessons", nargs="*", metavar="NN", help="lesson numbers; none means all")
    parser.add_argument("--zh", action="store_true", help="the Chinese lessons")
    options = parser.parse_intermixed_args(argv)  # FOLDER --zh 01 too
    if re.fullmatch(r"\d\d", str(options.folder)):
        parser.error(f"{options.folder} is the number of a lesson: the folder comes first")
    try:
        for path in write_course(options.folder, options.lessons, "zh" if options.zh else "en"):
            print(path)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
