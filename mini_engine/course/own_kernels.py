"""What a notebook needs to write Triton kernels in: a mode chosen first, and a way on where Triton is missing."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from mini_engine.kernels._mode import TritonMissingError, import_triton, is_interpreted

MARK = "# needs Triton"


def start_kernels() -> tuple[Any, Any]:
    """Decide where kernels run, say so, and return Triton and its language. Comes before other imports.

    The interpreter computes with NumPy, which warns of 0 / 0 and log2(0). A GPU does not, nor does it here: a part of a context
    without tokens has both, and they are masked off later.

    Where Triton is not installed it says what is missing and returns (None, None). In a notebook all cells whose first line
    is MARK are then passed over, each with a word, so that the rest still runs. Raises TritonModeError where Triton has been
    imported in the other mode.
    """
    try:
        triton = import_triton()
    except TritonMissingError as error:
        print(f"Triton is missing: {error}")
        print(f"Cells that begin with {MARK!r} are passed over; the others run.")
        _pass_over()
        return None, None
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"triton\.runtime\.interpreter")
    print(f"Triton {triton.__version__}: kernels are {'interpreted, on the CPU' if is_interpreted() else 'compiled'}")
    return triton, triton.language


def without_kernels(lines: list[str]) -> list[str]:
    """The lines of a cell, or one that says why it is passed over."""
    if lines and lines[0].strip() == MARK:
        return ["print('  passed over: Triton is missing')\n"]
    return lines


def _pass_over() -> None:
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    shell = get_ipython()  # type: ignore[no-untyped-call]
    if shell is not None and without_kernels not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.insert(0, without_kernels)
