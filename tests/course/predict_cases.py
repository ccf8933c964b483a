"""A size and a count to guess."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction

KV = Prediction(
    id="99.kv",
    question="How many GiB of KV cache?",
    answer=2.5,
    unit="GiB",
    mistakes=[(20.0, "That forgets that 8 query heads share one K/V head."), (1.25, "That forgets the 2 for K and V.")],
    because="327,680 B a token times 8,192 tokens.",
)
PASSES = Prediction(
    "99.passes", "How many passes?", 20, "passes", [(120, "Those are tokens."), (100, "The prompt.")], rtol=0
)
