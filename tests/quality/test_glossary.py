"""The glossary says what the lessons say, in both languages, and a term has one translation in the whole course."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tools import glossary
from tools.glossary import Term
from tools.lessons.build import sources
from tools.lessons.source import read_lesson

ROOT = Path(__file__).resolve().parents[2]


def prose(path: Path) -> str:
    """The text cells of a notebook, without the table of terms, in one line."""
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    return " ".join(
        " ".join(text.split()) for text in cells if not re.search(r"^\| (term|术语) \|", text, re.M)
    ).lower()


PROSE = {
    path.name[:2]: (prose(path), prose(path.parent / "zh" / path.name))
    for path in sorted((ROOT / "lessons").glob("*.ipynb"))
}
MORE = glossary.rows((ROOT / glossary.PAGE).read_text(encoding="utf-8").partition("## More words")[2])[1:]


def test_the_page_is_up_to_date(capsys) -> None:
    assert glossary.main(["--check"]) == 0, f"run python tools/glossary.py: {capsys.readouterr().out}"


@pytest.mark.parametrize("path", sources(ROOT), ids=lambda path: path.stem)
def test_every_lesson_has_its_terms_in_both_languages(path: Path) -> None:
    assert len(glossary.terms_of(read_lesson(path))) >= 4


@pytest.mark.parametrize("row", MORE, ids=lambda row: row[0])
def test_a_word_stands_in_the_lesson_that_it_names_in_both_languages(row: list[str]) -> None:
    english, chinese, _, lesson = row
    text, zh = PROSE[lesson]
    assert re.search(rf"\b{re.escape(english.lower())}", text)
    assert chinese.lower() in zh


def test_no_word_has_two_rows() -> None:
    terms = [term for path in sources(ROOT) for term in glossary.terms_of(read_lesson(path))]
    words = [row[0].lower() for row in MORE] + [term.english.lower() for term in glossary.joined(terms)]
    assert len(words) == len(set(words))
    assert [row[0] for row in MORE] == sorted((row[0] for row in MORE), key=str.lower)


def test_two_translations_of_a_term_are_refused() -> None:
    seat = Term("seat", "席位", "", "", ["12"])
    assert glossary.joined([seat, Term("seat", "席位", "", "", ["15"])])[0].lessons == ["12", "15"]
    with pytest.raises(ValueError, match=r"seat: 席位 in .*座位"):
        glossary.joined([seat, Term("seat", "座位", "", "", ["15"])])
    with pytest.raises(ValueError, match="one translation"):
        glossary.joined([seat, Term("place", "席位", "", "", ["15"])])


def test_tables_that_differ_are_refused() -> None:
    lesson = read_lesson(sources(ROOT, ["12"])[0])
    cell = next(cell for cell in lesson.cells if glossary.HEAD in cell.text)
    assert cell.zh is not None
    cell.zh = cell.zh.replace("静态批处理 | static batching", "静态批处理 | static batch")
    with pytest.raises(ValueError, match="12_continuous_batching: the English and the Chinese table of terms differ"):
        glossary.terms_of(lesson)
