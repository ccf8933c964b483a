"""Build the notebooks in lessons/ and solutions/ from the sources solutions/NN_name.py.

python tools/build_lessons.py               build every lesson
python tools/build_lessons.py 01 02         build these
python tools/build_lessons.py --check       rebuild, compare with what is stored, exit 1 with a diff
python tools/build_lessons.py --refresh 01  renew the outputs of cells tagged nbval-ignore-output too
python tools/build_lessons.py --stamp 01    write the hash of each English text into its Chinese twin:
                                            say that the translation is up to date, after looking at it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.lessons import build  # noqa: E402
from tools.lessons.execute import ExecutionError  # noqa: E402
from tools.lessons.source import SourceError, stamped  # noqa: E402


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: 0 built or equal, 1 stored notebooks differ, 2 a source is refused or a cell raised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="NN", help="lesson numbers; none means all")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--refresh", action="store_true", help="renew machine-dependent outputs")
    parser.add_argument("--stamp", action="store_true", help="mark translations as up to date")
    args = parser.parse_args(argv)
    try:
        paths = build.sources(root, args.lessons)
        if args.stamp:
            for path in paths:
                path.write_text(stamped(path.read_text(encoding="utf-8")), encoding="utf-8")
            return 0
        built = {k: v for path in paths for k, v in build.build(root, path, refresh=args.refresh).items()}
    except (SourceError, ExecutionError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    left_over = [] if args.lessons else build.stale(root)
    if args.check:
        reports = build.compare(root, built) + [f"{name}: has no source" for name in left_over]
        print("\n\n".join(reports) or f"{len(built)} notebooks are as their sources say")
        return 1 if reports else 0
    for name in left_over:
        (root / name).unlink()
    for name in [*build.write(root, built), *left_over]:
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
