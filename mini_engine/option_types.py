"""Types for the options of commands: each checks its text as argparse reads it, so that an error names the option."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mini_engine import arguments
from mini_engine.units import DTYPE_BYTES, GB


def option(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """A checker as argparse wants it: its message is printed behind the option's name."""

    def parse(text: str) -> Any:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix("value=")) from None

    return parse


def as_integer(text: str) -> Any:
    """The integer that a text stands for; the text itself when it stands for none, for a checker to refuse."""
    return int(text) if text.strip().lstrip("+-").isdecimal() and len(text) < 100 else text


def one_of(*allowed: str) -> Callable[[str], Any]:
    """An option's type that takes one of these words."""
    return option(lambda text: arguments.choice("value", text, allowed))


def a_real(*, positive: bool = False, scale: float = 1.0, limit: int = 10**9) -> Callable[[str], Any]:
    """A number of at least 0, or above it, as a float, times `scale`."""
    return option(lambda text: float(arguments.number("value", text, positive=positive, limit=limit)) * scale)


def _gigabytes(text: str) -> int:
    """A number of GB as whole bytes."""
    size = arguments.number("value", text, limit=10**9) * GB
    if size.denominator != 1:
        raise ValueError(f"{arguments.shown(text)} GB are no whole number of bytes")
    return size.numerator


count = option(lambda text: arguments.count("value", as_integer(text), limit=10**9))
share = option(lambda text: arguments.share("value", text))
gigabytes = option(_gigabytes)
dtype = one_of(*DTYPE_BYTES)
