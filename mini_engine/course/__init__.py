"""What a notebook may import besides the engine: `check`, `predict`, `panel`, and the pictures.

`check` and `predict` are light. `panel`, `picture` and `svg` pull in matplotlib and ipywidgets when they are first called.
"""

from __future__ import annotations

from mini_engine.course.check import CheckFailed, check
from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.figures import picture, svg
from mini_engine.course.panel import panel
from mini_engine.course.predict import predict

__all__ = ["CheckFailed", "Exercise", "Mutant", "Prediction", "Property", "check", "panel", "picture", "predict", "svg"]
