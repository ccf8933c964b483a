"""Answers to lesson 00's loop: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable

Tokens = list[int]
Stop = int | None
NextToken = Callable[[Tokens], int]


def generate(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    """The tokens that follow `prompt`: at most `max_tokens`, ending with `stop_token` if the model says it."""
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(list(tokens)))
        if tokens[-1] == stop_token:
            break
    return tokens[len(prompt) :]


def two_lists(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    output: Tokens = []
    while len(output) < max_tokens:
        output = [*output, next_token(prompt + output)]
        if output[-1] == stop_token:
            return output
    return output


def other_names(f: NextToken, p: Tokens, n: int, s: Stop = None) -> Tokens:
    return two_lists(f, p, n, s)


def last_token_only(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    output, last = [], prompt[-1]
    for _ in range(max_tokens):
        last = next_token([last])
        output.append(last)
        if last == stop_token:
            break
    return output


def returns_the_prompt_too(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return list(prompt) + generate(next_token, prompt, max_tokens, stop_token)


def counts_the_prompt(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(next_token, prompt, max(0, max_tokens - len(prompt)), stop_token)


def one_token_at_least(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(next_token, prompt, max(1, max_tokens), stop_token)


def drops_the_stop_token(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    output = generate(next_token, prompt, max_tokens, stop_token)
    return output[:-1] if output and output[-1] == stop_token else output


def never_stops(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(next_token, prompt, max_tokens)


def stop_token_if_true(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(next_token, prompt, max_tokens, stop_token or None)


def stops_at_the_prompts_stop_token(
    next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None
) -> Tokens:
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(list(tokens)))
        if stop_token in tokens:
            break
    return tokens[len(prompt) :]


def forgets_to_append(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    output: Tokens = []
    while len(output) < max_tokens and (not output or output[-1] != stop_token):
        output.append(next_token(list(prompt)))
    return output


def grows_the_prompt(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    start = len(prompt)
    for _ in range(max_tokens):
        prompt.append(next_token(list(prompt)))
        if prompt[-1] == stop_token:
            break
    return prompt[start:]


def cuts_afterwards(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    output = generate(next_token, prompt, max_tokens)
    return output[: output.index(stop_token) + 1] if stop_token in output else output


def looks_before_the_last_token(
    next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None
) -> Tokens:
    output = generate(next_token, prompt, max_tokens, stop_token)
    return output[:-1] if len(output) == max_tokens and output[-1:] == [stop_token] else output


def zero_stops(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = 0) -> Tokens:
    return generate(next_token, prompt, max_tokens, stop_token)


def compares_identity(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(next_token(list(tokens)))
        if tokens[-1] is stop_token:
            break
    return tokens[len(prompt) :]


def sixteen_at_most(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(next_token, prompt, min(16, max_tokens), stop_token)


def short_prompt(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(next_token, prompt[-4:], max_tokens, stop_token)


def short_context(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    return generate(lambda tokens: next_token(tokens[-8:]), prompt, max_tokens, stop_token)


def borrows_the_prompt(next_token: NextToken, prompt: Tokens, max_tokens: int, stop_token: Stop = None) -> Tokens:
    start = len(prompt)
    output = grows_the_prompt(next_token, prompt, max_tokens, stop_token)
    del prompt[start:]
    return output
