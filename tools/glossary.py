"""Write docs/glossary.md from the tables of terms at the end of every lesson.

python tools/glossary.py            write it
python tools/glossary.py --check    exit 1 when it is not up to date

A lesson's table names each term in both languages, in the English text and in the Chinese one. Both must say the same, and a term
has one translation in the whole course: ValueError otherwise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.lessons.build import sources  # noqa: E402
from tools.lessons.source import Lesson, read_lesson  # noqa: E402
from tools.marks import between, bring_up_to_date, only_compares  # noqa: E402

HEAD = "| term | Chinese |"
PAGE = Path("docs", "glossary.md")


@dataclass
class Term:
    """A term in both languages, as the first lesson that has it in its table explains it; `lessons` are all that do."""

    english: str
    chinese: str
    meaning: str
    meaning_zh: str
    lessons: list[str] = field(default_factory=list)


def rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table's rows, without head and rule."""
    lines = re.findall(r"^\| (.*) \|$", text, re.M)
    return [re.split(r" \| ", line) for line in lines[1:]]


def terms_of(lesson: Lesson) -> list[Term]:
    """The terms of one lesson. ValueError when its two tables differ."""
    found = []
    for cell in lesson.cells:
        if HEAD not in cell.text:
            continue
        assert cell.zh is not None
        english, chinese = rows(cell.text), rows(cell.zh)
        if [row[:2] for row in english] != [row[1::-1] for row in chinese]:
            differ = [(a[:2], b[1::-1]) for a, b in zip(english, chinese) if a[:2] != b[1::-1]]
            raise ValueError(f"{lesson.name}: the English and the Chinese table of terms differ: {differ}")
        number = lesson.name[:2]
        found += [Term(a[0], a[1], a[-1], b[-1], [number]) for a, b in zip(english, chinese)]
    return found


def joined(terms: Iterable[Term]) -> list[Term]:
    """Each term once, by its English name. ValueError for a term with two translations, or two terms with one."""
    known: dict[str, Term] = {}
    for term in terms:
        first = known.setdefault(term.english, term)
        if first.chinese != term.chinese:
            raise ValueError(f"{term.english}: {first.chinese} in {first.lessons}, {term.chinese} in {term.lessons}")
        if first is not term:
            first.lessons += term.lessons
    translations = [term.chinese for term in known.values()]
    if twice := {word for word in translations if translations.count(word) > 1}:
        raise ValueError(f"two terms have one translation: {sorted(twice)}")
    return sorted(known.values(), key=lambda term: term.english.lower())


def table(terms: Iterable[Term]) -> str:
    """One row a term."""
    lines = ["| term | 中文 | what it is | 含义 | lesson |", "|---|---|---|---|---|"]
    lines += [f"| {t.english} | {t.chinese} | {t.meaning} | {t.meaning_zh} | {', '.join(t.lessons)} |" for t in terms]
    return "\n".join(lines)


def page(root: Path = ROOT) -> str:
    """The whole page, with the table as the lessons have it."""
    terms = joined(term for path in sources(root) for term in terms_of(read_lesson(path)))
    return between((root / PAGE).read_text(encoding="utf-8"), "terms", table(terms))


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 written or up to date, 1 with --check when a page is not."""
    check = only_compares(argv, __doc__)
    return bring_up_to_date({root / PAGE: page(root)}, root, check=check)


if __name__ == "__main__":
    sys.exit(main())
