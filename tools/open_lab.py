"""Copy the lessons that are not in `my_lessons/` yet, then open JupyterLab on that folder.

A learner's copy is never overwritten: to start a lesson afresh, delete or rename the copy and run `make lab` again.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def copy_new_lessons(source: Path, target: Path) -> list[Path]:
    """Copy every notebook below `source` that `target` lacks; returns the new files."""
    new = []
    for notebook in sorted(source.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in notebook.parts:
            continue
        copy = target / notebook.relative_to(source)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(notebook, copy)
            new.append(copy)
    return new


def main() -> None:
    target = ROOT / "my_lessons"
    for copy in copy_new_lessons(ROOT / "lessons", target):
        print(f"new lesson: {copy.relative_to(ROOT)}")
    if first := next(iter(sorted(target.glob("*.ipynb"))), None):
        print(
            f"JupyterLab opens in your browser. Start with {first.relative_to(ROOT)}. Ctrl-C here ends it.", flush=True
        )
    options = [f"--ServerApp.root_dir={target}", *sys.argv[1:]]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container everybody is root, and Jupyter refuses to start
        options.append("--allow-root")
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *options])


if __name__ == "__main__":
    main()
