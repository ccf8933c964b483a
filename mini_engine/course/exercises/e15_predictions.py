"""Lesson 15, what to guess: a step that fails, passes of a batch, who is there, gains that do not multiply, and too much load."""

from __future__ import annotations

from mini_engine import EngineConfig, LLMEngine
from mini_engine.backends import AuditBackend
from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises.e15_execute import greedy


def computed_after_a_failure(prompt: int = 100, budget: int = 16, failing: int = 3) -> int:
    """Tokens that count as computed after step number `failing` has failed."""

    class Fails(AuditBackend):
        num_passes = 0

        def execute(self, batch):  # type: ignore[no-untyped-def]
            self.num_passes += 1
            if self.num_passes == failing:
                raise RuntimeError("out of memory")
            return super().execute(batch)

    engine = LLMEngine(EngineConfig(num_blocks=16, max_num_batched_tokens=budget), Fails())
    engine.add_request("a", [1] * prompt, greedy(4))
    try:
        for _ in range(failing):
            engine.step()
    except RuntimeError:
        pass
    return engine.scheduler.requests["a", 0].num_computed_tokens


def passes_of(prompts: tuple[int, ...] = (5, 3, 2), answer: int = 4) -> int:
    """Forward passes until all of these prompts are answered, all there from the start."""

    class Counts(AuditBackend):
        num_passes = 0

        def execute(self, batch):  # type: ignore[no-untyped-def]
            self.num_passes += 1
            return super().execute(batch)

    backend = Counts()
    engine = LLMEngine(EngineConfig(num_blocks=16), backend)
    for number, length in enumerate(prompts):
        engine.add_request(str(number), [1 + number] * length, greedy(answer))
    while engine.has_unfinished_requests():
        engine.step()
    return backend.num_passes


ROLLBACK = Prediction(
    "15.rollback",
    "A prompt of 100 tokens is computed 16 tokens a step. The third step fails. How many tokens count as computed afterwards?",
    computed_after_a_failure(),
    "tokens",
    mistakes=[
        (48, "The third chunk may be half written: nobody may count on it."),
        (0, "The first two chunks were committed, and nothing has touched them."),
        (100, "Then nothing would be left to compute, and it has not been computed."),
        (16, "Two steps were committed before the third failed."),
        (84, "That is what is left after one step. The question is for what is done."),
        (68, "That is what is left. The question is for what is done."),
        (2, "That is the number of steps that count. Each computed 16 tokens."),
    ],
    because="Two committed steps of 16 tokens. What the third wrote is written again: a commit alone moves the count.",
    rtol=0,
)

PASSES = Prediction(
    "15.passes",
    "Prompts of 5, 3 and 2 tokens come at once and get 4 tokens each. The budget is large. How many forward passes does the engine run?",
    passes_of(),
    "passes",
    mistakes=[
        (12, "That is one for each token of each answer. All three share every pass."),
        (5, "The pass over the prompts gives the first token of each answer, so three more do."),
        (22, "That is the number of tokens, prompts and answers together."),
        (15, "That is a pass for each prompt, and one for each token. They share passes."),
        (6, "That is a pass for each prompt and three more. The prompts share one."),
        (3, "Those are the decodes. The pass over the prompts comes first."),
        (13, "That is 10 + 3, so every prompt token in a pass of its own. A prompt is computed in one."),
    ],
    because="One pass computes all three prompts and gives three tokens. Three more passes give the others.",
    rtol=0,
)

LITTLE = Prediction(
    "15.little",
    "40 requests come every second, and each is there for 8.5 seconds. How many are there at a time, on average?",
    40 * 8.5,
    "requests",
    mistakes=[
        (40, "Those come in one second. They stay longer than that."),
        (8.5, "That is how long each stays, in seconds."),
        (4.7, "Divided, that is nothing that one could count. Whoever came in the last 8.5 seconds is still there."),
        (48.5, "A rate and a time are multiplied, not added."),
        (320, "That is for 8 seconds."),
        (360, "That is for 9 seconds."),
    ],
    because="Little's law: rate times time there, 40 x 8.5. It needs no assumption about how they come.",
    rtol=0.01,
)

KEPT_AT_8 = 0.77
"""Requests per second for which one L40S keeps the promise when 8 come, with a budget of 2,048 tokens; a test simulates it."""

OVERLOAD = Prediction(
    "15.overload",
    "An L40S with a budget of 2,048 tokens keeps the promise for 3.8 of 4 requests a second. Now 8 come every second. For how many of them a second is it kept?",
    KEPT_AT_8,
    "requests/s",
    mistakes=[
        (8, "It is given twice what it can take."),
        (
            4,
            "That would be so if it served four and sent four away. It tries to serve all, and is late for nearly all.",
        ),
        (
            3.8,
            "That would be so if it served four and sent four away. It tries to serve all, and is late for nearly all.",
        ),
        (7.6, "The share does not stay at 96% when there is more to do."),
        (2, "Fewer still: everybody shares the delay, so that nearly all miss it."),
        (0, "Nearly. Those who come first find it empty."),
    ],
    because="Nobody is turned away, so all become slow together: the promise is kept for one in ten.",
    rtol=0.35,
)

ALONE = {"paging": 1.0, "iteration-level scheduling": 11.3, "chunking": 11.3, "a prefix cache": 1.0}
"""How many times the load of a static batch in reserved memory each carries alone, and below all four; a test simulates it."""
TOGETHER = 83

PRODUCT = Prediction(
    "15.product",
    "On one simulated service, paging alone carries 1.0 times the load of a static batch in reserved memory, iteration-level scheduling 11.3 times, chunking (which is iteration-level too) 11.3 times, and a prefix cache 1.0 times. How many times do all four carry together?",
    TOGETHER,
    "times",
    mistakes=[
        (1, "Then one could leave all of them out. Iteration-level scheduling alone carries more."),
        (
            100,
            "No sum and no product of these four gives the answer. Ask what happens when blocks can be shared and nobody waits for a batch.",
        ),
        (
            50,
            "No sum and no product of these four gives the answer. Ask what happens when blocks can be shared and nobody waits for a batch.",
        ),
        (128, "That is the product. Chunking alone is iteration-level scheduling too: the gain was counted twice."),
        (127.7, "That is the product. Chunking alone is iteration-level scheduling too: the gain was counted twice."),
        (11.3, "Two of them do nothing alone. Together they do."),
        (24.6, "That is the sum. Factors of load are not added either."),
        (10, "That is what people say. Nobody's measurement composes to it, and ours does not either."),
        (12.3, "The prefix cache does nothing in reserved memory, and very much in paged memory."),
    ],
    because="A prefix cache needs blocks that can be shared, and paging alone waits for a static batch. No factor can be read off alone.",
    rtol=0.15,
)
