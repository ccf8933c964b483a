"""Lesson 00: the loop that every language model runs, one token at a time."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, expect_equal
from mini_engine.course.guard import InputChanged

NextToken = Callable[[list[int]], int]


def generate(next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None) -> list[int]:
    """The tokens that follow `prompt`: at most `max_tokens`, ending with `stop_token` if the model says it."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(list(tokens)))
        if tokens[-1] == stop_token:
            break
    return tokens[len(prompt) :]


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


# Another right answer: recursion-free, with the output kept apart from the prompt.


def _two_lists(next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None) -> list[int]:
    output: list[int] = []
    while len(output) < max_tokens:
        output = [*output, next_token(prompt + output)]
        if output[-1] == stop_token:
            return output
    return output


# Wrong answers that people write.


def _last_token_only(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    output, last = [], prompt[-1]
    for _ in range(max_tokens):
        last = next_token([last])
        output.append(last)
        if last == stop_token:
            break
    return output


def _returns_the_prompt_too(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return list(prompt) + generate(next_token, prompt, max_tokens, stop_token)


def _counts_the_prompt(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return generate(next_token, prompt, max(0, max_tokens - len(prompt)), stop_token)


def _one_token_at_least(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return generate(next_token, prompt, max(1, max_tokens), stop_token)


def _drops_the_stop_token(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    output = generate(next_token, prompt, max_tokens, stop_token)
    return output[:-1] if output and output[-1] == stop_token else output


def _never_stops(next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None) -> list[int]:
    return generate(next_token, prompt, max_tokens)


def _stop_token_if_true(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return generate(next_token, prompt, max_tokens, stop_token or None)


def _stops_at_the_prompts_stop_token(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(list(tokens)))
        if stop_token in tokens:
            break
    return tokens[len(prompt) :]


def _forgets_to_append(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    output: list[int] = []
    while len(output) < max_tokens and (not output or output[-1] != stop_token):
        output.append(next_token(list(prompt)))
    return output


def _grows_the_prompt(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    start = len(prompt)
    for _ in range(max_tokens):
        prompt.append(next_token(list(prompt)))
        if prompt[-1] == stop_token:
            break
    return prompt[start:]


def _cuts_afterwards(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    output = generate(next_token, prompt, max_tokens)
    return output[: output.index(stop_token) + 1] if stop_token in output else output


def _looks_before_the_last_token(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    output = generate(next_token, prompt, max_tokens, stop_token)
    return output[:-1] if len(output) == max_tokens and output[-1:] == [stop_token] else output


def _zero_stops(next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = 0) -> list[int]:
    return generate(next_token, prompt, max_tokens, stop_token)


def _compares_identity(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(list(tokens)))
        if tokens[-1] is stop_token:
            break
    return tokens[len(prompt) :]


def _sixteen_at_most(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return generate(next_token, prompt, min(16, max_tokens), stop_token)


def _short_prompt(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return generate(next_token, prompt[-4:], max_tokens, stop_token)


def _short_context(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    return generate(lambda tokens: next_token(tokens[-8:]), prompt, max_tokens, stop_token)


def _borrows_the_prompt(
    next_token: NextToken, prompt: list[int], max_tokens: int, stop_token: int | None = None
) -> list[int]:
    start = len(prompt)
    output = _grows_the_prompt(next_token, prompt, max_tokens, stop_token)
    del prompt[start:]
    return output


GENERATE = Exercise(
    id="00.generate",
    title="The loop",
    reference=generate,
    properties=[
        Property("the model sees the whole sequence each time", _sees_everything),
        Property("max_tokens is a limit, and 0 is allowed", _max_tokens_is_a_limit),
        Property("returns the new tokens, in order", _new_tokens),
        Property("the stop token ends the output and is part of it", _stops),
    ],
    mutants=[
        Mutant(
            "returns the prompt too",
            _returns_the_prompt_too,
            "returns the new tokens, in order",
            "The caller has the prompt already; only the new tokens are asked for.",
        ),
        Mutant(
            "feeds only the last token",
            _last_token_only,
            "the model sees the whole sequence each time",
            "Without a cache the model remembers nothing between two calls.",
        ),
        Mutant(
            "forgets to append",
            _forgets_to_append,
            "the model sees the whole sequence each time",
            "The new token has to go back in, or the model answers the same question again.",
        ),
        Mutant(
            "counts the prompt against max_tokens",
            _counts_the_prompt,
            "max_tokens is a limit, and 0 is allowed",
            "max_tokens limits the output; the prompt does not count.",
        ),
        Mutant(
            "one token at least",
            _one_token_at_least,
            "max_tokens is a limit, and 0 is allowed",
            "A loop that samples first and counts later gives one token for max_tokens=0.",
        ),
        Mutant(
            "drops the stop token",
            _drops_the_stop_token,
            "the stop token ends the output and is part of it",
            "The stop token was generated, so it belongs to the token ids (the text leaves it out).",
        ),
        Mutant(
            "never stops",
            _never_stops,
            "the stop token ends the output and is part of it",
            "Without the test the loop goes on to max_tokens and pays for every token.",
        ),
        Mutant(
            "ignores stop token 0",
            _stop_token_if_true,
            "the stop token ends the output and is part of it",
            "`if stop_token and ...` takes 0 for no stop token; ask `is not None`, or just compare.",
        ),
        Mutant(
            "stops at a stop token of the prompt",
            _stops_at_the_prompts_stop_token,
            "the stop token ends the output and is part of it",
            "A stop token in the prompt was said by somebody else, such as the end of an earlier turn of a chat.",
        ),
        Mutant(
            "grows the caller's prompt",
            _grows_the_prompt,
            INPUTS_UNCHANGED,
            "list.append changes the list that the caller still holds.",
        ),
        Mutant(
            "cuts afterwards",
            _cuts_afterwards,
            "the stop token ends the output and is part of it",
            "The tokens after the stop token are thrown away, but they were paid for.",
        ),
        Mutant(
            "drops a stop token in the last place",
            _looks_before_the_last_token,
            "the stop token ends the output and is part of it",
            "A stop token that arrives with the last allowed token was generated too.",
        ),
        Mutant(
            "stops at 0 unasked",
            _zero_stops,
            "max_tokens is a limit, and 0 is allowed",
            "0 is a token like any other. `None` says that there is no stop token.",
        ),
        Mutant(
            "compares with `is`",
            _compares_identity,
            "the stop token ends the output and is part of it",
            "Python keeps one object for each small int only; two equal larger ones need not be the same object.",
        ),
        Mutant(
            "16 tokens at most",
            _sixteen_at_most,
            "max_tokens is a limit, and 0 is allowed",
            "The caller sets the limit.",
        ),
        Mutant(
            "cuts the prompt",
            _short_prompt,
            "the model sees the whole sequence each time",
            "What is cut off cannot be in the answer.",
        ),
        Mutant(
            "cuts the context",
            _short_context,
            "the model sees the whole sequence each time",
            "The model is to see all that has been said so far.",
        ),
        Mutant(
            "borrows the caller's prompt",
            _borrows_the_prompt,
            INPUTS_UNCHANGED,
            "It is put back at the end, but not when the model raises, and others may be reading it.",
        ),
    ],
    alternatives=[_two_lists, lambda f, p, n, s=None: _two_lists(f, p, n, s)],
)

TOKENS_RUN = Prediction(
    "00.tokens_run",
    "The prompt has 4 tokens and you want 3 new ones. Every pass reruns the whole sequence. How many token-forwards?",
    sum(range(4, 4 + 3)),
    "token-forwards",
    mistakes=[
        (3, "Those are the passes. Each pass runs every token of the sequence so far."),
        (4 + 3 - 1, "That is the count when every token runs once. Here each pass starts again from the first token."),
        (4 + 3, "That counts every token once. Here each pass starts again from the first token."),
        (4 * 3, "Three passes, yes, but the sequence grows: the second pass has 5 tokens, the third has 6."),
        (5 + 6 + 7, "The first pass has only the prompt, 4 tokens. The first new token is what comes out of it."),
        ((4 + 3) * 3, "The sequence is not at its full length from the start. It grows by one token a pass."),
    ],
    because="4 + 5 + 6: the first pass has the prompt, each later one has one token more.",
    rtol=0,
)

PASSES = Prediction(
    "00.passes",
    "With a KV cache, a prompt of 100 tokens, 20 new tokens. How many forward passes?",
    20,
    "passes",
    mistakes=[
        (19, "Those are the decode passes. The prefill pass comes before them, and gives a new token too."),
        (21, "The prefill pass gives the first new token already, so 1 + 19 passes are enough."),
        (119, "That counts token-forwards. The 100 prompt tokens share one pass."),
        (120, "That counts tokens. The 100 prompt tokens share one pass."),
        (100, "That is the prompt. Its tokens share one pass. Passes are counted by the new tokens."),
        (101, "The 100 prompt tokens share one pass."),
        (1, "The prompt needs one pass, but every further token needs the one before it."),
    ],
    because="1 prefill pass gives the first token, 19 decode passes give the others.",
    rtol=0,
)

FIRST_PASS = Prediction(
    "00.first_pass",
    "The same request. How many tokens run in the first pass?",
    100,
    "tokens",
    mistakes=[
        (20, "Those are the new tokens. They do not exist yet when the first pass runs."),
        (1, "That is a decode pass. The first pass fills the cache with the whole prompt."),
        (120, "The 20 new tokens do not exist yet."),
        (101, "The first new token comes out of this pass. It runs in the next one."),
    ],
    because="Prefill: the whole prompt at once.",
    rtol=0,
)
