"""Links are written from the repository's root; each notebook gets them relative to its own folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from tools.lessons.twins import CODE, LINK

ELSEWHERE = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*:|#|//)")
NOTEBOOK = re.compile(r"^(?:lessons|solutions)/(?:zh/)?([^/]+\.ipynb)$")


def targets(text: str) -> Iterator[str]:
    """The files of this repository that a text links to, fragments left out."""
    for piece in CODE.split(text)[:: CODE.groups + 1]:
        for match in LINK.finditer(piece):
            target = match[1] or match[2]
            if not ELSEWHERE.match(target):
                yield target.partition("#")[0]


def rewritten(text: str, folder: str, has_notebook: Callable[[str], bool]) -> str:
    """The text with its links relative to `folder`. A link to a lesson stays in the reader's folder and language if it can."""

    def relative(target: str) -> str:
        path, hash_, fragment = target.partition("#")
        lesson = NOTEBOOK.match(path)
        if lesson and has_notebook(f"{folder}/{lesson[1]}"):
            path = f"{folder}/{lesson[1]}"
        return PurePosixPath(os.path.relpath(path, folder)).as_posix() + hash_ + fragment

    return _each_link(text, relative)


def _each_link(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to every link target that is a path, outside code."""

    def replace(match: re.Match[str]) -> str:
        target = match[1] or match[2]
        return match[0] if ELSEWHERE.match(target) else match[0].replace(target, change(target))

    pieces, at = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(replace, text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*pieces, LINK.sub(replace, text[at:])])
