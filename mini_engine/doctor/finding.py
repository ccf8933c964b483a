"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Check:
    """One finding. A fault stops something that is needed; a warning does not. Both name their remedy."""

    name: str
    status: Status
    found: str
    remedy: str = ""
