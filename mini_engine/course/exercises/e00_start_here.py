"""Lesson 00: the loop that every language model runs, one token at a time."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Property
from mini_engine.course.exercises import answers00_start_here as answers
from mini_engine.course.expect import expect, expect_equal
from mini_engine.course.guard import InputChanged


class CountingModel:
    """Stands in for a language model: the next token depends on the whole sequence, and every call is recorded.

    `prompt` is the caller's own list; after each call `changed` says whether it has been written to so far.
    """

    def __init__(self, prompt: list[int] | None = None) -> None:
        self.seen: list[list[int]] = []
        self.prompt, self.before, self.changed = prompt, list(prompt or []), False

    def __call__(self, tokens: list[int]) -> int:
        self.seen.append(list(tokens))
        self.changed |= self.prompt is not None and self.prompt != self.before
        expect(
            len(self.seen) <= 100, "the model has been called 100 times, far more often than max_tokens: does it stop?"
        )
        return sum((place + 2) * token for place, token in enumerate(tokens)) % 997


def _expected(prompt: list[int], max_tokens: int) -> list[int]:
    """The same answer by recursion, so that it shares no loop with an answer."""
    if max_tokens == 0:
        return []
    head = CountingModel()(prompt)
    return [head, *_expected([*prompt, head], max_tokens - 1)]


# From the most particular to the most general, so that the first one to fail names the fault.


def _sees_everything(candidate: Callable[..., list[int]]) -> None:
    for prompt, max_tokens in (([5], 3), ([3, 1], 3), ([2, 7, 1], 9), (list(range(1, 13)), 2)):
        given = list(prompt)
        model = CountingModel(given)
        candidate(model, given, max_tokens)
        if model.changed:
            raise InputChanged("the call changed its argument `prompt` in place while it ran; work on a copy")
        for call, seen in enumerate(model.seen):
            want = [*prompt, *_expected(prompt, call)]
            expect_equal(seen, want, f"prompt {prompt}: what the model was given in call {call + 1}")


def _max_tokens_is_a_limit(candidate: Callable[..., list[int]]) -> None:
    for prompt in ([5], [4, 2], [0]):
        for max_tokens in (0, 1, 3, 40):
            model = CountingModel()
            candidate(model, list(prompt), max_tokens)
            case = f"prompt {prompt}, max_tokens {max_tokens}, no stop token: how often the model was called"
            expect_equal(len(model.seen), max_tokens, case)


def _new_tokens(candidate: Callable[..., list[int]]) -> None:
    for prompt in ([5], [3, 1], [2, 7, 1, 8]):
        for max_tokens in (0, 1, 2, 5):
            model = CountingModel()
            got = candidate(model, list(prompt), max_tokens)
            want = _expected(prompt, max_tokens)
            expect_equal(got, want, f"prompt {prompt}, max_tokens {max_tokens}; the model said {want}")


def _stops(candidate: Callable[..., list[int]]) -> None:
    tokens = _expected([3, 1], 4)
    for place, max_tokens in ((0, 4), (2, 4), (0, 1), (2, 3)):
        model, stop_token = CountingModel(), tokens[place]
        case = f"prompt [3, 1], max_tokens {max_tokens}, stop_token {stop_token}"
        expect_equal(candidate(model, [3, 1], max_tokens, stop_token), tokens[: place + 1], case)
        expect_equal(len(model.seen), place + 1, f"{case}: how often the model was called")
    got = candidate(CountingModel(), [0], 3, 0)
    expect_equal(got, [0], "prompt [0], max_tokens 3, stop_token 0: a token like any other")
    got = candidate(CountingModel(), [3, 1], 4, 1)
    expect_equal(got, tokens, "prompt [3, 1], max_tokens 4, stop_token 1: it is in the prompt, the model never says it")


SEES, LIMIT, NEW, STOP = (
    "the model sees the whole sequence each time",
    "max_tokens is a limit, and 0 is allowed",
    "returns the new tokens, in order",
    "the stop token ends the output and is part of it",
)

GENERATE = Exercise(
    id="00.generate",
    title="The loop",
    reference=answers.generate,
    properties=[
        Property(SEES, _sees_everything),
        Property(LIMIT, _max_tokens_is_a_limit),
        Property(NEW, _new_tokens),
        Property(STOP, _stops),
    ],
    mutants=[
        Mutant("returns the prompt too", answers.returns_the_prompt_too, NEW, "The caller has the prompt already; only the new tokens are asked for."),
        Mutant("feeds only the last token", answers.last_token_only, SEES, "Without a cache the model remembers nothing between two calls."),
        Mutant("forgets to append", answers.forgets_to_append, SEES, "The new token has to go back in, or the model answers the same question again."),
        Mutant("counts the prompt against max_tokens", answers.counts_the_prompt, LIMIT, "max_tokens limits the output; the prompt does not count."),
        Mutant("one token at least", answers.one_token_at_least, LIMIT, "A loop that samples first and counts later gives one token for max_tokens=0."),
        Mutant("drops the stop token", answers.drops_the_stop_token, STOP, "The stop token was generated, so it belongs to the token ids (the text leaves it out)."),
        Mutant("never stops", answers.never_stops, STOP, "Without the test the loop goes on to max_tokens and pays for every token."),
        Mutant("ignores stop token 0", answers.stop_token_if_true, STOP, "`if stop_token and ...` takes 0 for no stop token; ask `is not None`, or just compare."),
        Mutant("stops at a stop token of the prompt", answers.stops_at_the_prompts_stop_token, STOP, "A stop token in the prompt was said by somebody else, such as the end of an earlier turn of a chat."),
        Mutant("grows the caller's prompt", answers.grows_the_prompt, INPUTS_UNCHANGED, "list.append changes the list that the caller still holds."),
        Mutant("cuts afterwards", answers.cuts_afterwards, STOP, "The tokens after the stop token are thrown away, but they were paid for."),
        Mutant("drops a stop token in the last place", answers.looks_before_the_last_token, STOP, "A stop token that arrives with the last allowed token was generated too."),
        Mutant("stops at 0 unasked", answers.zero_stops, LIMIT, "0 is a token like any other. `None` says that there is no stop token."),
        Mutant("compares with `is`", answers.compares_identity, STOP, "Python keeps one object for each small int only; two equal larger ones need not be the same object."),
        Mutant("16 tokens at most", answers.sixteen_at_most, LIMIT, "The caller sets the limit."),
        Mutant("cuts the prompt", answers.short_prompt, SEES, "What is cut off cannot be in the answer."),
        Mutant("cuts the context", answers.short_context, SEES, "The model is to see all that has been said so far."),
        Mutant("borrows the caller's prompt", answers.borrows_the_prompt, INPUTS_UNCHANGED, "It is put back at the end, but not when the model raises, and others may be reading it."),
    ],
    alternatives=[answers.two_lists, answers.other_names],
)  # fmt: skip
