"""Parts of a page that are made, between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations


def between(text: str, name: str, made: str) -> str:
    """The page with `made` between the marks `name`. ValueError unless each mark is there once, in order."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"a page needs {begin} and, after it, {end}, each once")
    return f"{text.partition(begin)[0]}{begin}\n{made}\n{end}{text.partition(end)[2]}"
