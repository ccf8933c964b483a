"""What the build refuses before it starts a kernel: faults in a source, in twins, in regions, in links."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.lessons import links, twins
from tools.lessons.build import build
from tools.lessons.regions import RegionError, clear_hidden_tests, clear_solutions
from tools.lessons.source import SourceError, read_lesson, stamped

ENGLISH = """# Head

Text with `code` and $a^2$, a [link](docs/a.md), 16 GiB, 90 %.

```python
x = 1
```

<details><summary>Hint</summary>

## Part

</details>"""
CHINESE = """# 标题

文字，`code`，90%，$a^2$，[链接](docs/a.md)，16 GiB。

```python
x = 1
```

<details><summary>提示</summary>

## 部分

</details>"""


def test_twins_may_reorder_a_sentence() -> None:
    assert twins.differences(ENGLISH, CHINESE, twins.text_hash(ENGLISH)) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("`code`", "`kode`", "inline code"),
        ("`code`", "code", "inline code"),
        ("$a^2$", "$a^3$", "formulas"),
        ("(docs/a.md)", "(docs/b.md)", "links"),
        ("# 标题", "## 标题", "heading levels"),
        ("x = 1", "x = 2", "code blocks"),
        ("16 GiB", "16 GB", "numbers with units"),
        ("16 GiB", "17 GiB", "numbers with units"),
        ("90%", "9%", "numbers with units"),
        ("</details>", "", "HTML tags"),
        ("，16 GiB", "", "numbers with units"),
        ("文字", "文字 `code`", "inline code"),
    ],
)
def test_twins_that_differ(old: str, new: str, words: str) -> None:
    assert old in CHINESE
    faults = twins.differences(ENGLISH, CHINESE.replace(old, new, 1), twins.text_hash(ENGLISH))
    assert len(faults) == 1
    assert faults[0].startswith(words)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("1,024 bytes in 3 ms", "3 毫秒内 1024 字节"),
        ("64-byte lines", "64 字节的行"),
        ("60 minutes, 2.5 s", "60 分钟，2.5 秒"),
        ("900 GB/s and 5%", "5％，900 GB/s"),
        ("it costs $5 and $6", "费用为 $5 和 $6"),
        ("three bytes", "三个字节"),
    ],
)
def test_units_in_both_languages(english: str, chinese: str) -> None:
    assert twins.differences(english, chinese, twins.text_hash(english)) == []


@pytest.mark.parametrize(
    ("english", "chinese"),
    [("2.5 GB", "2.5 GB/s"), ("8 ms", "8 µs"), ("1,500 B", "1,050 字节"), ("$x$ is 2 s", "$x$ 为 2 ms")],
)
def test_units_that_differ(english: str, chinese: str) -> None:
    assert "numbers with units" in twins.differences(english, chinese, twins.text_hash(english))[0]


def test_english_that_has_moved_on_is_seen() -> None:
    stamp = twins.text_hash(ENGLISH)
    assert "changed since" in twins.differences(ENGLISH.replace("Text", "Words"), CHINESE, stamp)[0]
    assert "no en=" in twins.differences(ENGLISH, CHINESE, None)[0]


HEADER = "# ---\n# jupyter:\n#   course:\n#     translated: false\n# ---\n\n"
EN, ZH = (
    '# %% [markdown] lang="en"\n# One `a`\n\n',
    '# %% [markdown] lang="zh" en="{}"\n# 一 `a`\n\n'.format(twins.text_hash("One `a`")),
)
CODE = "# %%\nx = 1\n"

REFUSED = {
    "text without lang": ("# %% [markdown]\n# text\n", "needs lang"),
    "English without twin": (EN + CODE, "no Chinese twin"),
    "English without twin at the end": (CODE + EN, "no Chinese twin"),
    "two English texts": (EN + EN + ZH, "no Chinese twin"),
    "Chinese first": (ZH + EN + CODE, "must follow"),
    "Chinese twice": (EN + ZH + ZH, "must follow"),
    "code between twins": (EN + CODE + ZH, "no Chinese twin"),
    "stale": (EN.replace("One", "Two") + ZH, "changed since"),
    "unknown option": ('# %% exercize="a"\nx = 1\n', "unknown cell option 'exercize'"),
    "exercise and test": ('# %% exercise="a" test="a"\nx = 1\n', "cannot be both"),
    "points that are no number": ('# %% test="a" points="two"\nx = 1\n', "whole number of points"),
    "points without a test": ("# %% points=2\nx = 1\n", "belong to a test"),
    "NBVAL comment": ("# %%\n# NBVAL_IGNORE_OUTPUT\nx = 1\n", "nbval-ignore-output"),
    "same exercise twice": ('# %% exercise="a"\nx = 1\n# %% exercise="a"\nx = 2\n', "two cells"),
}


def written(root: Path, text: str) -> Path:
    (root / "solutions").mkdir(exist_ok=True)
    path = root / "solutions" / "97_lesson.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_source_with_a_fault(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        read_lesson(written(tmp_path, text))
    assert "97_lesson.py:" in str(caught.value)


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        read_lesson(written(tmp_path, EN + CODE + "# %% points=2\nx = 1\n# %% [markdown]\n# text\n"))
    assert len(str(caught.value).splitlines()) == 4  # no twin twice, points, lang


def test_right_source(tmp_path: Path) -> None:
    lesson = read_lesson(written(tmp_path, EN + ZH + CODE))
    assert [(c.kind, c.text, c.zh, c.line) for c in lesson.cells] == [
        ("markdown", "One `a`", "一 `a`", 1),
        ("code", "x = 1", None, 7),
    ]
    assert lesson.translated


def test_lesson_in_english_only(tmp_path: Path) -> None:
    lesson = read_lesson(written(tmp_path, HEADER + EN + CODE))
    assert not lesson.translated
    assert len(lesson.cells) == 2
    half_done = read_lesson(written(tmp_path, HEADER + EN + ZH.replace("`a`", "`b`") + CODE))
    assert len(half_done.cells) == 2, "a translation under way is not looked at yet"


def test_stamp_writes_each_hash_and_nothing_else(tmp_path: Path) -> None:
    other = EN.replace("One", "Two")
    text = (
        EN
        + ZH.replace("en=", "en=").replace(twins.text_hash("One `a`"), "stale")
        + other
        + '# %% [markdown] lang="zh" tags=["x"]\n# 二 `a`\n'
        + CODE
    )
    with pytest.raises(SourceError):
        read_lesson(written(tmp_path, text))
    fresh = stamped(text)
    assert len(read_lesson(written(tmp_path, fresh)).cells) == 3
    assert stamped(fresh) == fresh
    assert [line for line in fresh.splitlines() if "zh" not in line] == [
        line for line in text.splitlines() if "zh" not in line
    ]


SOLVED = "def f(x):\n    # about 2 lines\n    ### BEGIN SOLUTION\n    y = x\n    return y\n    ### END SOLUTION\n\n\ndef g():\n  ### BEGIN SOLUTION\n  pass\n  ### END SOLUTION"


def test_solutions_become_stubs_with_their_indent() -> None:
    want = "def f(x):\n    # about 2 lines\n    raise NotImplementedError\n\n\ndef g():\n  raise NotImplementedError"
    assert clear_solutions(SOLVED, True) == want


def test_exercise_without_a_region_becomes_the_stub() -> None:
    assert clear_solutions("x = 1", True) == "raise NotImplementedError"
    assert clear_solutions("x = 1", False) == "x = 1"


def test_hidden_tests_disappear() -> None:
    code = "check(f)\n### BEGIN HIDDEN TESTS\nassert f(1)\n### END HIDDEN TESTS"
    assert clear_hidden_tests(code, True) == "check(f)"
    assert clear_hidden_tests("check(f)", True) == "check(f)"


BEGIN, END = "### BEGIN SOLUTION\n", "### END SOLUTION\n"


@pytest.mark.parametrize("code", [BEGIN + BEGIN + END, BEGIN + "x", END, END + BEGIN + END])
def test_regions_nested_open_or_never_begun(code: str) -> None:
    with pytest.raises(RegionError):
        clear_solutions(code, True)
    with pytest.raises(RegionError):
        clear_hidden_tests(code.replace("SOLUTION", "HIDDEN TESTS"), True)


def test_regions_in_the_wrong_cell(tmp_path: Path) -> None:
    with pytest.raises(RegionError, match="exercise"):
        clear_solutions(SOLVED, False)
    with pytest.raises(RegionError, match="test="):
        clear_hidden_tests("### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS", False)
    source = written(tmp_path, EN + ZH + "# %%\n" + BEGIN + "x = 1\n" + END)
    with pytest.raises(SourceError, match=r"97_lesson\.py:7: a solution region"):
        build(tmp_path, source, execute=never)


def never(*args: object) -> object:
    raise AssertionError("a source with a fault must not reach a kernel")


def test_broken_link_is_refused_before_running(tmp_path: Path) -> None:
    source = written(
        tmp_path, HEADER + '# %% [markdown] lang="en"\n# [gone](docs/gone.md) and [this](lessons/97_lesson.ipynb)\n'
    )
    with pytest.raises(SourceError, match=r"broken link 'docs/gone\.md'"):
        build(tmp_path, source, execute=never)


@pytest.mark.parametrize(
    ("folder", "want"),
    [
        ("lessons", "[a](../docs/a.md#top) ![b](../docs/b.png) [c](01_x.ipynb) [d](02_y.ipynb)"),
        ("lessons/zh", "[a](../../docs/a.md#top) ![b](../../docs/b.png) [c](01_x.ipynb) [d](../02_y.ipynb)"),
        ("solutions", "[a](../docs/a.md#top) ![b](../docs/b.png) [c](01_x.ipynb) [d](02_y.ipynb)"),
        (
            "solutions/zh",
            "[a](../../docs/a.md#top) ![b](../../docs/b.png) [c](01_x.ipynb) [d](../../lessons/02_y.ipynb)",
        ),
    ],
)
def test_links_are_relative_and_stay_with_the_reader(folder: str, want: str) -> None:
    have = {f"{f}/01_x.ipynb" for f in ("lessons", "lessons/zh", "solutions", "solutions/zh")} | {
        "lessons/02_y.ipynb",
        "solutions/02_y.ipynb",
    }
    text = "[a](docs/a.md#top) ![b](docs/b.png) [c](lessons/01_x.ipynb) [d](lessons/02_y.ipynb)"
    assert links.rewritten(text, folder, have.__contains__) == want
    assert list(links.targets(text)) == ["docs/a.md", "docs/b.png", "lessons/01_x.ipynb", "lessons/02_y.ipynb"]


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://x.org/docs/a.md)",
        "[a](#top)",
        "[a](mailto:a@b.c)",
        "`[a](docs/a.md)`",
        "```\n[a](docs/a.md)\n```",
        '<img src="data:image/png;base64,AA=">',
    ],
)
def test_links_left_alone(text: str) -> None:
    assert links.rewritten(text, "lessons", lambda path: False) == text
    assert list(links.targets(text)) == []


def test_html_links_are_rewritten() -> None:
    assert (
        links.rewritten('<img src="docs/a.png" alt="docs/a.png">', "lessons", lambda path: False)
        == '<img src="../docs/a.png" alt="docs/a.png">'
    )
