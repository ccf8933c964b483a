"""What the lessons read: models, tables, traces and texts."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mini_engine.data_files import data_dir
from mini_engine.doctor.finding import Check, Status

REINSTALL = "install mini-engine again, or unpack it again; in a checkout: `git checkout -- data`"


def check_models() -> Iterator[Check]:
    """Are the small models and the real one here, with sound headers?"""
    from mini_engine.models import ModelNotFoundError, open_checkpoint

    needed: list[tuple[str, Status, str]] = [
        ("tiny-gqa", "fault", REINSTALL),
        ("tiny-mla", "fault", REINSTALL),
        (
            "smollm2-135m",
            "warning",
            f'"{sys.executable}" -m mini_engine download smollm2-135m',
        ),  # mini-engine may not be on the PATH
    ]
    for name, if_missing, remedy in needed:
        try:
            yield Check(
                f"model {name}", "ok", str(open_checkpoint(name).path)
            )  # a look at the headers finds a cut file
        except ModelNotFoundError:
            yield Check(f"model {name}", if_missing, "not there", remedy)
        except ValueError as error:
            yield Check(f"model {name}", "fault", str(error), remedy)


def check_tables() -> Iterator[Check]:
    """Can the tables, traces and texts be read that came with the package?"""
    from mini_engine.catalog import get_gpu, get_model, list_gpus, list_models
    from mini_engine.workload import load_trace

    folder = data_dir()
    try:
        models, gpus = [get_model(name) for name in list_models()], [get_gpu(name) for name in list_gpus()]
        paths = (path for path in (folder / "traces").glob("synthetic_*") if path.suffix in (".csv", ".jsonl"))
        traces = [load_trace(path.name) for path in sorted(paths)]
        for path in folder.glob("text/*.txt"):
            path.read_text(encoding="utf-8")
    except (OSError, ValueError, LookupError) as error:
        yield Check("tables", "fault", f"{type(error).__name__}: {error}", REINSTALL)
        return
    counts = f"{len(models)} models, {len(gpus)} GPUs and {len(traces)} traces"
    if models and gpus and traces:
        yield Check("tables", "ok", f"{counts} in {folder}")
    else:
        yield Check("tables", "fault", f"only {counts} in {folder}", REINSTALL)
