"""When a branch ends, and that no text is shown which a stop string takes back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine.sampling import SamplingParams
from mini_engine.stopping import StopChecker, StopStringMatcher


class Pieces:
    """A detokenizer whose token i is the i-th piece of bytes; whole characters come out as soon as they are whole."""

    def __init__(self, *pieces: str | bytes) -> None:
        self.pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self.left = b""

    def add(self, token_id: int) -> str:
        self.left += self.pieces[token_id]
        for size in range(len(self.left), -1, -1):
            try:
                text = self.left[:size].decode()
            except UnicodeDecodeError:
                continue
            self.left = self.left[size:]
            return text
        raise AssertionError("the empty string always decodes")

    def finish(self) -> str:
        return self.left.decode(errors="replace")


def run(params: SamplingParams, tokens: list[int], pieces: Pieces | None = None, eos=(), **options):
    """(number of tokens taken, finish reason, text, the text after each token)."""
    checker = StopChecker(params, eos, pieces, **options)
    seen = []
    for token in tokens:
        if checker.finish_reason is not None:
            break
        checker.add(token)
        seen.append(checker.text)
    for earlier, later in itertools.pairwise(seen):
        assert later.startswith(earlier), f"shown text was taken back: {earlier!r} then {later!r}"
    return checker.num_tokens, checker.finish_reason, checker.text, seen


# -- tokens and lengths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "taken", "reason"),
    [
        ({"max_tokens": 0}, 0, "length"),
        ({"max_tokens": 1}, 1, "length"),
        ({"max_tokens": 5}, 5, "length"),
        ({"max_tokens": 9}, 9, "stop"),  # token 9 ends the text; the limit falls on it too, and the stop is named
        ({"max_tokens": 20}, 9, "stop"),
        ({"max_tokens": 20, "ignore_eos": True}, 20, "length"),
        ({"max_tokens": 20, "stop_token_ids": (4,)}, 4, "stop"),
        ({"max_tokens": 20, "stop_token_ids": (4,), "ignore_eos": True}, 4, "stop"),
        ({"max_tokens": 20, "stop_token_ids": (4,), "min_tokens": 3}, 4, "stop"),
        ({"max_tokens": 20, "stop_token_ids": (4,), "min_tokens": 4}, 9, "stop"),
        ({"max_tokens": 20, "min_tokens": 8}, 9, "stop"),
        ({"max_tokens": 20, "min_tokens": 9}, 20, "length"),
        ({"max_tokens": 3, "min_tokens": 3}, 3, "length"),
    ],
    ids=str,
)
def test_token_i_is_i_and_9_ends_the_text(params, taken, reason):
    assert run(SamplingParams(**params), list(range(1, 30)), eos=(9,))[:2] == (taken, reason)


def test_the_context_can_leave_less_room_than_max_tokens():
    assert run(SamplingParams(max_tokens=20), [1] * 30, max_tokens=3)[:2] == (3, "length")
    assert run(SamplingParams(max_tokens=2), [1] * 30, max_tokens=3)[:2] == (2, "length")
    assert run(SamplingParams(max_tokens=20), [1] * 30, max_tokens=0)[:2] == (0, "length")
    # the context wins over min_tokens: there is no place for more
    assert run(SamplingParams(max_tokens=9, min_tokens=9), [1] * 30, max_tokens=3)[:2] == (3, "length")


def test_nothing_may_follow_the_end():
    checker = StopChecker(SamplingParams(max_tokens=1))
    checker.add(3)
    with pytest.raises(ValueError, match="token 4 after the end"):
        checker.add(4)


def test_a_stop_token_gives_no_text_and_lets_held_text_go():
    pieces = Pieces("one ", "two #", "<end>")
    taken, reason, text, seen = run(SamplingParams(stop=("##",)), [0, 1, 2], pieces, eos=(2,))
    assert (taken, reason, text) == (3, "stop", "one two #")
    assert seen == ["one ", "one two ", "one two #"]


def test_text_held_back_at_the_length_limit_is_text():
    assert run(SamplingParams(stop=("stop",), max_tokens=1), [0], Pieces("a sto"))[2] == "a sto"


def test_half_a_character_at_the_end_shows_as_a_replacement_character():
    assert run(SamplingParams(max_tokens=2), [0, 1], Pieces("a", "é".encode()[:1]))[2] == "a\ufffd"


def test_without_a_tokenizer_stop_strings_are_refused_and_tokens_still_stop():
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        StopChecker(SamplingParams(stop=("x",)))
    assert run(SamplingParams(stop_token_ids=(2,)), [1, 2, 3]) == (2, "stop", "", ["", ""])


# -- stop strings --------------------------------------------------------------------------------------------------------


def test_a_stop_string_across_tokens():
    taken, reason, text, seen = run(SamplingParams(stop=("END",)), [0, 1, 2, 3], Pieces("xE", "N", "D more", "never"))
    assert (taken, reason, text) == (3, "stop", "x")
    assert seen == ["x", "x", "x"]


def test_a_beginning_that_does_not_go_on_is_shown_late():
    seen = run(SamplingParams(stop=("END",)), [0, 1, 2], Pieces("xE", "N", "A"))[3]
    assert seen == ["x", "x", "xENA"]


def test_a_stop_string_inside_multi_byte_text():
    text = "日本語。終わり。"
    raw = text.encode()
    pieces = Pieces(*(raw[i : i + 2] for i in range(0, len(raw), 2)))  # no token is a whole character
    _, reason, shown, seen = run(SamplingParams(stop=("。終",), max_tokens=99), list(range(len(pieces.pieces))), pieces)
    assert (reason, shown) == ("stop", "日本語")
    assert not any("\ufffd" in text for text in seen)


def test_a_stop_string_beats_the_length_on_the_same_token():
    assert run(SamplingParams(stop=("b",), max_tokens=2), [0, 1], Pieces("a", "b"))[1:3] == ("stop", "a")


def test_the_whole_text_can_be_the_stop_string():
    assert run(SamplingParams(stop=("ab",)), [0], Pieces("ab"))[:3] == (1, "stop", "")


@pytest.mark.parametrize(
    ("min_tokens", "taken", "text"),
    [
        (0, 2, "a"),
        (1, 2, "a"),  # the string is complete in token 2, past the first min_tokens tokens
        (2, 4, "axyb"),  # the first one passes, the second ends it
        (3, 4, "axyb"),
        (4, 5, "axybxyc"),
    ],
)
def test_stop_strings_wait_for_min_tokens(min_tokens, taken, text):
    params = SamplingParams(stop=("xy",), min_tokens=min_tokens, max_tokens=5)
    assert run(params, [0, 1, 2, 3, 4], Pieces("a", "xy", "b", "xy", "c"))[:3:2] == (taken, text)


def test_a_stop_string_may_begin_within_min_tokens():
    assert run(SamplingParams(stop=("xy",), min_tokens=1), [0, 1], Pieces("ax", "y"))[:3] == (2, "stop", "a")


def naive_stop(text: str, stops: tuple[str, ...]) -> str | None:
    """What is left of `text`, read letter by letter: cut at the first stop string that is complete."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return None


@settings(max_examples=500)
@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_the_cut_does_not_depend_on_how_the_text_is_pieced(pieces, stops):
    text, matcher, shown = "".join(pieces), StopStringMatcher(stops), ""
    for count, piece in enumerate(pieces, start=1):
        shown += matcher.push(piece)
        if matcher.matched:
            break
        # as little as possible is held back: the longest end that could still become a stop string
        so_far = "".join(pieces[:count])
        held = [n for n in range(len(so_far)) if any(s.startswith(so_far[n:]) and s != so_far[n:] for s in stops)]
        assert shown == so_far[: min(held, default=len(so_far))]
    expected = naive_stop(text, stops)
    assert (matcher.matched is not None) == (expected is not None)
    assert (shown if matcher.matched else shown + matcher.flush()) == (text if expected is None else expected)
