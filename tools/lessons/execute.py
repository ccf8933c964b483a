"""Run a notebook in a fresh kernel, in the folder where a reader opens it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbclient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

CELL_SECONDS = 120
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class ExecutionError(RuntimeError):
    """A cell raised, or ran past its time."""


CHECKOUT = Path(__file__).resolve().parents[2]


def kernel_environment(strict: bool) -> dict[str, str]:
    """The environment of a kernel: this checkout's package, COURSE_STRICT only where a wrong answer is an error, and Triton's
    interpreter, so that stored outputs do not depend on a GPU.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("COURSE_STRICT", "NBGRADER_EXECUTION", "PYTHONPATH")}
    env["TRITON_INTERPRET"] = "1"
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    return {**env, "COURSE_STRICT": "1"} if strict else env


def execute(notebook: NotebookNode, root: Path, folder: str, strict: bool) -> NotebookNode:
    """Run every cell in order and store its outputs in the notebook. Raises ExecutionError with the cell and its traceback."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(root / folder)}},
    )
    try:
        client.execute(env=kernel_environment(strict))
    except CellExecutionError as error:
        raise ExecutionError(f"{folder}: {COLOUR.sub('', str(error))}") from None
    except nbclient.exceptions.CellTimeoutError as error:
        raise ExecutionError(f"{folder}: a cell ran past {CELL_SECONDS} seconds: {error}") from None
    return notebook
