"""The timeline of a run: one row for each request, one cell for each step, as letters and as a Gantt picture.

from mini_engine.course.timeline import draw, timeline

line = timeline(simulate(trace, record=True, ...))       a simulation
line = timeline(engine)                                  an engine or LLM made with record=True, or its events
line = timeline(plans, prompts={"a": 8, "b": 3})         any StepPlans
print(line)                                              rows of letters
line.count("padding"), line.rows["a"].states[3]          what the letters stand for
picture(lambda figure: draw(figure, {"static": line, "continuous": other}, x="seconds"))
"""

from __future__ import annotations

from mini_engine.course.timeline.draw import draw
from mini_engine.course.timeline.rows import LETTERS, Row, Timeline, timeline

__all__ = ["LETTERS", "Row", "Timeline", "draw", "timeline"]
