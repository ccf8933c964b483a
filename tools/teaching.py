"""Write the teacher's page of every lesson, docs/teaching/NN.md, from the lesson itself and its exercises.

python tools/teaching.py            write the pages, and the table of lessons in docs/teaching/README.md
python tools/teaching.py --check    exit 1 and name the pages that are not up to date

What is on a page is in the lesson already: outcomes, order, points, properties, hints, questions. The common wrong answers are
the mutants that the checks are tested with.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mini_engine.course.bug_bank import BugHunt  # noqa: E402
from mini_engine.course.exercise import Exercise, Prediction  # noqa: E402
from mini_engine.course.exercises import find  # noqa: E402
from tools.lessons.build import sources  # noqa: E402
from tools.lessons.source import Lesson, read_lesson  # noqa: E402
from tools.marks import between, bring_up_to_date, only_compares  # noqa: E402

MINUTES = re.compile(r"^(\d+) to (\d+) minutes[^·\n]* · (.*)$", re.M)
EFFORT = re.compile(r"^Difficulty (\d)/5 · importance (\d)/5 · (\d+) minutes", re.M)
CHECK = re.compile(r'check\(\s*"(\d\d\.\w+)"')
HUNT = re.compile(r'bugs_caught\(\s*\w+,\s*"(\d\d)"')
DETAILS = re.compile(r"<details><summary>(.*?)</summary>\n+(.*?)\n*</details>", re.S)


@dataclass(frozen=True)
class Task:
    """One exercise cell as it stands in a lesson; most have one exercise."""

    exercises: tuple[Exercise, ...]
    heading: str
    points: int
    difficulty: int
    importance: int
    minutes: int
    hint: str


def tasks(lesson: Lesson) -> list[Task]:
    """The exercises of a lesson in order, each with what the text around it says."""
    found = []
    for number, cell in enumerate(lesson.cells):
        if not cell.test:
            continue
        before = next(c for c in reversed(lesson.cells[:number]) if EFFORT.search(c.text))
        after = next(c for c in lesson.cells[number:] if "Hint 1" in c.text)
        effort = EFFORT.search(before.text)
        assert effort is not None
        heading = re.findall(r"^#+ (.*)$", before.text[: effort.start()], re.M)[-1]
        hint = next(text for summary, text in DETAILS.findall(after.text) if summary.startswith("Hint 1"))
        difficulty, importance, minutes = map(int, effort.groups())
        ids = CHECK.findall(cell.text) + [f"{number}.bugs" for number in HUNT.findall(cell.text)]
        exercises = tuple(find(Exercise, id_) for id_ in ids)
        found.append(Task(exercises, heading, cell.points, difficulty, importance, minutes, _line(hint)))
    return found


def page(lesson: Lesson) -> str:
    """The teacher's page of one lesson."""
    goals = next(cell.text for cell in lesson.cells if "goals" in cell.tags)
    title, pain = _title(goals), re.findall(r"^\*\*(.*)\*\*$", goals, re.M)[0]
    low, high, needs = _minutes(goals)
    outcomes = goals[goals.index("you can") :].partition("\n\n")[2].strip()
    has_zh = " · [中文](../../lessons/zh/{0}.ipynb)" if lesson.translated else ""
    links = "[lesson](../../lessons/{0}.ipynb)" + has_zh + " · [solution](../../solutions/{0}.ipynb)"
    parts = [
        f"# {title}: for the teacher",
        f"<!-- made by tools/teaching.py from solutions/{lesson.name}.py: edit there -->",
        f"**{pain}**",
        f"{low} to {high} minutes · {needs} · {links.format(lesson.name)}",
        f"## After it, a learner can\n\n{outcomes}",
        "## Order, and where to stop\n\nA good place to stop is after any exercise: the notebook goes on with the engine's version.",
        *_order(lesson),
        "## Rubric\n\nThe check gives all points of an exercise or none. For marks in between, count the properties that hold.",
        *_rubric(lesson),
        *_wrong_answers(lesson),
        *_predictions(lesson),
        *_questions(lesson),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _order(lesson: Lesson) -> list[str]:
    efforts = {task.heading: task for task in tasks(lesson)}
    rows = []
    for cell in lesson.cells:
        for heading in re.findall(r"^##+ (.*)$", re.sub(r"```.*?```", "", cell.text, flags=re.S), re.M):
            if cell.kind == "markdown":
                task = efforts.get(heading)
                rows.append(f"- {heading}" + (f" ({task.minutes} minutes)" if task else ""))
    return ["\n".join(rows)]


def _rubric(lesson: Lesson) -> list[str]:
    rows = ["| exercise | points | difficulty | minutes | full points when |", "|---|---|---|---|---|"]
    for task in tasks(lesson):
        properties = "; ".join(_cell(prop.name) for exercise in task.exercises for prop in exercise.properties)
        ids = ", ".join(f"`{exercise.id}`" for exercise in task.exercises)
        rows.append(
            f"| {_cell(task.heading)} ({ids}) | {task.points} | {task.difficulty}/5 | {task.minutes} | {properties} |"
        )
    rows.append(f"| all | {sum(task.points for task in tasks(lesson))} | | {sum(t.minutes for t in tasks(lesson))} | |")
    return ["\n".join(rows)]


def _wrong_answers(lesson: Lesson) -> list[str]:
    parts = ["## Common wrong answers, and what to say"]
    for task in tasks(lesson):
        hunts = [exercise for exercise in task.exercises if isinstance(exercise, BugHunt)]
        wrong = [mutant for exercise in task.exercises for mutant in exercise.mutants if exercise not in hunts]
        table = []
        if hunts:
            table = ["| the bug that gets away | where to look |", "|---|---|"]
            table += [
                f"| {_cell(name)} | {_cell(bug.hint)} |" for hunt in hunts for name, bug in hunt.bank.wrong.items()
            ]
        elif wrong:
            table = ["| the answer | why it is wrong | the property that fails |", "|---|---|---|"]
            table += [f"| {_cell(m.name.replace('_', ' '))} | {_cell(m.why)} | {_cell(m.caught_by)} |" for m in wrong]
        parts += [f"### {task.heading}", f"Say first: {task.hint}", "\n".join(table)]
    parts.append(
        "Then let the learner trace the smallest case that the check prints, with shapes and indices written down. Ask: "
        "which line makes this number?"
    )
    return parts


def _predictions(lesson: Lesson) -> list[str]:
    asked = [id_ for cell in lesson.cells for id_ in re.findall(r'predict\(\s*"(\d\d\.\w+)"', cell.text)]
    if not asked:
        return []
    parts = ["## Predictions\n\nLet everybody write a number down before anybody runs the cell."]
    for id_ in dict.fromkeys(asked):
        question = find(Prediction, id_)
        parts.append(
            f"**{_line(question.question)}** {_number(question.answer)} {question.unit}".strip()
            + f". {question.because}"
        )
        slips = [f"- {_number(wrong)}: {error}" for wrong, error in question.mistakes]
        parts.append("\n".join(slips))
    return parts


def _questions(lesson: Lesson) -> list[str]:
    found = [
        f"- {re.sub('<[^>]*>', '', summary)}"
        for cell in lesson.cells
        if {"question", "self-check"} & set(cell.tags)
        for summary, _ in DETAILS.findall(cell.text)
        if not summary.startswith(("Hint", "Answer"))
    ]
    return ["## To discuss\n\nThe lesson answers these at its end.\n\n" + "\n".join(found)] if found else []


def table(lessons: list[Lesson]) -> str:
    """One row a lesson: minutes, points, what it builds on."""
    rows = ["| lesson | minutes | exercises | points | needs |", "|---|---|---|---|---|"]
    for lesson in lessons:
        goals = next(cell.text for cell in lesson.cells if "goals" in cell.tags)
        low, high, needs = _minutes(goals)
        number, some = lesson.name[:2], tasks(lesson)
        rows.append(
            f"| [{_title(goals)}]({number}.md) | {low}-{high} | {len(some)} | {sum(t.points for t in some)} | {needs} |"
        )
    return "\n".join(rows)


def _title(goals: str) -> str:
    return re.findall(r"^# (.*)$", goals, re.M)[0]


def _minutes(goals: str) -> tuple[int, int, str]:
    found = MINUTES.search(goals)
    assert found is not None, "the first cell needs a line such as: 60 to 90 minutes · NumPy, no GPU · after lesson 01"
    return int(found[1]), int(found[2]), found[3]


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def pages(root: Path) -> dict[Path, str]:
    """Path to content of everything that this script writes."""
    folder = root / "docs" / "teaching"
    lessons = [read_lesson(path) for path in sources(root)]
    made = {folder / f"{lesson.name[:2]}.md": page(lesson) for lesson in lessons}
    readme = folder / "README.md"
    made[readme] = between(readme.read_text(encoding="utf-8"), "lessons", table(lessons))
    return made


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 written or up to date, 1 with --check when a page is not."""
    check = only_compares(argv, __doc__)
    return bring_up_to_date(pages(root), root, check=check)


if __name__ == "__main__":
    sys.exit(main())
