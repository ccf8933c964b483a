"""What a notebook may import besides the engine: `check`, `bugs_caught`, `predict`, `panel`, and the pictures.

`check`, `bugs_caught` and `predict` are light. `panel`, `picture` and `svg` pull in matplotlib and ipywidgets when they are first called.
"""

from __future__ import annotations

from mini_engine.course.bugs_caught import bugs_caught
from mini_engine.course.check import CheckFailed, check
from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.figures import picture, svg
from mini_engine.course.panel import panel
from mini_engine.course.predict import predict

__all__ = [
    "CheckFailed",
    "Exercise",
    "Mutant",
    "Prediction",
    "Property",
    "bugs_caught",
    "check",
    "panel",
    "picture",
    "predict",
    "svg",
]
