"""`@explained`: a calculator that can also show its working, `f.explain(same arguments)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, ParamSpec, Protocol, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Explained(Protocol[P, R_co]):
    """A function with its working attached."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The function's own value, without the words."""

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The same calculation as text: one line a step, with the numbers put in."""
        ...

    def steps(self, *args: P.args, **kwargs: P.kwargs) -> list[str]:
        """The lines of the working alone, for another function's working to build on."""
        ...

    def working(self, lines: Callable[..., Iterator[str]]) -> Callable[..., Iterator[str]]:
        """Decorator: register the generator that writes the working. It gets the result, then the arguments."""
        ...


def explained(not_included: str = "") -> Callable[[Callable[P, R]], Explained[P, R]]:
    """Give a function `.explain`. Its working is written just below it, by a generator of lines:

        @explained(not_included="everything else")
        def double(x: int) -> int:
            \"\"\"Twice x.\"\"\"
            return 2 * x

        @double.working
        def _(result, x):
            yield f"2 × {x} = {result}"

    `explain` first computes the result, so it refuses what the function refuses, in the same words.
    The text ends with what the figure leaves out, `not_included`.
    """

    def decorate(function: Callable[P, R]) -> Explained[P, R]:
        signature = inspect.signature(function)
        formula = cast(Any, function)

        def steps(*args: P.args, **kwargs: P.kwargs) -> list[str]:
            result = function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = {name: _plain(value) for name, value in bound.arguments.items()}
            return list(formula._working(result, **arguments))

        def explain(*args: P.args, **kwargs: P.kwargs) -> str:
            purpose = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
            lines = [f"{function.__name__}: {purpose}", *(f"  {line}" for line in steps(*args, **kwargs))]
            if not_included:
                lines.append(f"  not included: {not_included}")
            return "\n".join(lines)

        def working(lines: Callable[..., Iterator[str]]) -> Callable[..., Iterator[str]]:
            formula._working = lines
            return lines

        explain.__doc__ = f"The working of `{function.__name__}`, as text, for the same arguments."
        explain.__signature__ = signature.replace(return_annotation=str)  # type: ignore[attr-defined]
        formula.explain = explain
        formula.steps = steps
        formula.working = working
        return cast("Explained[P, R]", function)

    return decorate


def _plain(value: Any) -> Any:
    """A NumPy integer as one that does not overflow."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
