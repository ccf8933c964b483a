"""Pack the course for a class, without solutions: dist/mini-engine-course-VERSION.zip, the same bytes from the same files.

python tools/release.py            or: make release
python tools/release.py FOLDER     the archive goes there

In it is what a learner needs, as it was committed: lessons in both languages, the package, data, docs, and the files that set
everything up. Not in it: solutions, teachers' pages, tests, the scripts of the benchmarks (lessons read their
results), and the tools that make lessons. What a page says of those
stands between the marks <!-- project --> and <!-- /project -->, and is left out too. The engine's own version of every
exercise is in: the notebooks go on with it, and the checks compare with it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = [
    ".gitignore",
    "AGENTS.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "benchmarks/results",
    "data",
    "docs",
    "environment.yml",
    "lessons",
    "mini_engine",
    "postBuild",
    "pyproject.toml",
    "tools/open_lab.py",
]
LEFT_OUT = ("docs/teaching/",)
PROJECT = re.compile(r"^<!-- project -->\n.*?^<!-- /project -->\n\n?", re.M | re.S)
NOTE = """
> This is the course as a class gets it, without solutions and tests. `make test` is for the whole project.
"""
EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip file can hold; a real time would make every archive another one


def git(root: Path, *words: str) -> str:
    """What a command of git prints. RuntimeError where git does not know this folder."""
    done = subprocess.run(["git", *words, "--", *PARTS], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{root}: the bundle is made of the files that git knows: {done.stderr.strip()}")
    return done.stdout


def files(root: Path = ROOT) -> dict[str, bool]:
    """The paths that go into the bundle, from the root, sorted, and whether each can be executed.

    RuntimeError where git does not know every part: a copy inside somebody else's repository, for instance.
    """
    entries = [entry.split("\t", 1) for entry in git(root, "ls-files", "--stage", "-z").split("\0") if entry]
    known = {path: facts.startswith("100755") for facts, path in entries}
    if missing := [part for part in PARTS if not any(f"{path}/".startswith(f"{part}/") for path in known)]:
        raise RuntimeError(f"{root}: the bundle is made of the files that git knows, and it knows no {missing[0]} here")
    return {path: known[path] for path in sorted(known) if not path.startswith(LEFT_OUT)}


def uncommitted(root: Path = ROOT) -> list[str]:
    """Files of the bundle that are not as they were committed: a lesson that somebody solved in its place, for instance."""
    return [path for path in git(root, "diff", "--name-only", "--relative", "-z", "HEAD").split("\0") if path]


def content(path: Path, root: Path = ROOT) -> bytes:
    """A file as it is; of a page, what is for learners. ValueError for a mark without its other half."""
    if path.suffix != ".md":
        return path.read_bytes()
    text = PROJECT.sub("", path.read_text(encoding="utf-8"))
    if "<!-- project -->" in text or "<!-- /project -->" in text:
        raise ValueError(
            f"{path}: <!-- project --> and <!-- /project --> must come in pairs, each on a line of its own"
        )
    if path.name == "README.md" and path.parent == root:
        title, rest = text.split("\n", 1)
        text = f"{title}\n{NOTE}{rest}"
    return text.encode()


def write_bundle(folder: Path, root: Path = ROOT) -> Path:
    """Write the archive into `folder`; returns its path. Everything in it is below one folder of the archive's name."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    name = f"mini-engine-course-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    archive, part = folder / f"{name}.zip", folder / f"{name}.part"
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as bundle:
            for path, is_executable in files(root).items():
                entry = zipfile.ZipInfo(f"{name}/{path}", EARLIEST)
                entry.compress_type, entry.external_attr = (
                    zipfile.ZIP_DEFLATED,
                    (0o755 if is_executable else 0o644) << 16,
                )
                bundle.writestr(entry, content(root / path, root))
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)
    return archive


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 written, 2 refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=root / "dist", help="where the archive goes")
    options = parser.parse_args(argv)
    try:
        if changed := uncommitted(root):
            raise ValueError(
                f"not as it was committed: {', '.join(changed)}. A class would get it as it is now, perhaps with "
                f"answers: commit it, or put it back with git restore"
            )
        archive = write_bundle(options.folder, root)
    except (OSError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB, without solutions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
