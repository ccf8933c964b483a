"""Where the package's tables, traces and small models lie on disk."""

from __future__ import annotations

from pathlib import Path


def data_dir() -> Path:
    """The folder of tables, traces and small models: `data/` in a checkout, `mini_engine/_data` in an installed wheel."""
    package = Path(__file__).resolve().parent
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent / "data"
