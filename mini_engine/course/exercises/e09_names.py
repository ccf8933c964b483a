"""Lesson 09, exercise 1: the name of a block covers its tokens, all that came before, and what else its K/V depends on."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers09_names as answers
from mini_engine.course.expect import expect, fail, show

NONE = ("tiny", None, None)
Case = tuple[tuple[Any, ...], tuple[Any, ...]]


def _name(block_hash: Callable[..., Any], parents: tuple[list[int], ...], tokens: list[int], extra: Any = NONE) -> Any:
    """The name of a block after the blocks in `parents`."""
    name = None
    for before in (*parents, tokens):
        name = block_hash(name, list(before), extra)
    return name


def _words(block: tuple[Any, ...]) -> str:
    parents, tokens, extra = (*block, NONE)[:3]
    before = f" after {' and '.join(map(str, parents))}" if parents else ", the first block"
    return f"{tokens}{before}, extra {extra}"


def _differ(*cases: Case) -> Callable[[Any], None]:
    def run(block_hash: Callable[..., Any]) -> None:
        for one, other in cases:
            names = _name(block_hash, *one), _name(block_hash, *other)
            if names[0] == names[1]:
                fail(
                    "two blocks, one name", a=_words(one), b=_words(other), expected="two names", got=show(names[0], 60)
                )

    return run


def _after(block_hash: Callable[..., Any]) -> None:
    _differ(
        (((), [3, 4]), (([1, 2],), [3, 4])),
        ((([1, 2],), [3, 4]), (([1, 9],), [3, 4])),
        ((([1, 2], [5, 6]), [3, 4]), (([1, 9], [5, 6]), [3, 4])),
    )(block_hash)
    for i in range(32):  # every byte of the parent counts
        parents = bytes(32), bytes(1 if at == i else 0 for at in range(32))
        names = [block_hash(parent, [3, 4], NONE) for parent in parents]
        if names[0] == names[1]:
            fail(f"[3, 4] after two parents that differ in byte {i}", expected="two names", got=show(names[0], 60))


def _bytes(block_hash: Callable[..., Any]) -> None:
    for parents, tokens in (((), [1, 2]), (([1, 2],), [3, 4])):
        name = _name(block_hash, parents, tokens)
        case = f"the name of {_words((parents, tokens))}"
        expect(type(name) is bytes, case, expected="bytes", got=f"{show(name, 60)} ({type(name).__name__})")
        expect(len(name) >= 16, case, expected="at least 16 bytes", got=f"{len(name)} bytes")


def _again(block_hash: Callable[..., Any]) -> None:
    first = block_hash(None, [7, 8, 9], NONE)
    kinds: dict[str, Callable[[list[int]], Any]] = {
        "a list": list,
        "a tuple": tuple,
        "an array": lambda ids: array("q", ids),
        "a NumPy array": np.array,
    }
    for kind, tokens in ((kind, make([7, 8, 9])) for kind, make in kinds.items()):
        again = block_hash(None, tokens, ("tiny", None, None))
        expect(
            again == first,
            f"the first block, [7, 8, 9], as a list and then as {kind}",
            expected="one name",
            got=f"{show(first, 60)} and {show(again, 60)}",
        )


BYTES, AGAIN, OTHER, AFTER, EXTRA, ANY = (
    "a name is bytes, 16 or more",
    "the same block has the same name",
    "other tokens, or another order, give another name",
    "the same tokens after other blocks have another name",
    "model, adapter and salt are in the name",
    "any token id can be named",
)

BLOCK_HASH = Exercise(
    id="09.hash_block",
    title="The name of a block",
    reference=answers.block_hash,
    properties=[
        Property(BYTES, _bytes),
        Property(AGAIN, _again),
        Property(OTHER, _differ((((), [1, 2]), ((), [1, 3])), (((), [1, 2]), ((), [2, 1])), (((), [1, 4]), ((), [2, 3])), (((), [1, 23]), ((), [12, 3])), (((), [0, 5]), ((), [256, 5])), (((), [1, 2, 3]), ((), [1, 9, 3])))),
        Property(AFTER, _after),
        Property(EXTRA, _differ(
            (((), [1, 2], ("a", None, None)), ((), [1, 2], ("b", None, None))),
            (((), [1, 2], ("a", None, None)), ((), [1, 2], ("a", "french", None))),
            (((), [1, 2], ("a", None, None)), ((), [1, 2], ("a", None, "ann"))),
            (((), [1, 2], ("a", "x", None)), ((), [1, 2], ("a", None, "x"))),
            (((), [1, 2], ("a", "bc", None)), ((), [1, 2], ("ab", "c", None))),
            (((), [1, 2], ("a", None, None)), ((), [1, 2], ("a", None, ""))),
            (((), [1, 2], ("a", None, None)), ((), [1, 2], ("a", None, "None"))),
            *((((), [1, 2], (f"a{by}b", "c", None)), ((), [1, 2], ("a", f"b{by}c", None))) for by in (*"|,;:/-_ ", "|=", "\0")),
            ((([5, 6],), [1, 2], ("a", None, "ann")), (([5, 6],), [1, 2], ("a", None, "bob"))),
        )),
        Property(ANY, _differ((((), [-1, 2]), ((), [1, 2])), (((), [-1, 2]), ((), [-2, 2])), (((), [2**32, 2]), ((), [0, 2])), (((), [2**40 + 1, 2]), ((), [1, 2])), (((), [2**53 + 1, 2]), ((), [2**53, 2])), (((), [2**64, 2]), ((), [0, 2])))),
    ],
    mutants=[
        Mutant("Python's hash()", answers.a_number, BYTES, "A number of 64 bits, and for text another one in each process."),
        Mutant("8 bytes", answers.eight_bytes, BYTES, "64 bits are few when somebody searches for a collision on purpose."),
        Mutant("the list's own text", answers.type_matters, AGAIN, "array('q', [7]) and [7] are the same tokens."),
        Mutant("their sum", answers.their_sum, OTHER, "1 + 4 is 2 + 3."),
        Mutant("in any order", answers.their_set, OTHER, "Attention knows the order."),
        Mutant("digits run together", answers.run_together, OTHER, "[1, 23] and [12, 3] are both 123."),
        Mutant("one byte a token", answers.one_byte, OTHER, "Token ids go into the hundred thousands."),
        Mutant("length and ends", answers.its_ends, OTHER, "What lies between them counts as well."),
        Mutant("NumPy's own text", answers.a_list_of_them, AGAIN, "In NumPy's array each token prints as np.int64(7): make it an int."),
        Mutant("two bytes of the parent", answers.two_bytes_of_the_parent, AFTER, "A name is as wide as its narrowest part."),
        Mutant("None is a word", answers.none_is_a_word, EXTRA, "No salt and the salt \"None\" are two things."),
        Mutant("keys with a bar between", answers.keys_with_a_bar, EXTRA, "The bar may stand in a key, too."),
        Mutant("hash() in 16 bytes", answers.sixteen_bytes_of_a_number, ANY, "It has 64 bits, whatever it is put into, and gives -1 and -2 one name."),
        Mutant("8 bytes a token", answers.eight_bytes_a_token, ANY, "2^64 is not 0."),
        Mutant("as floats", answers.floats, ANY, "2^53 + 1 is no float."),
        Mutant("tokens only", answers.tokens_only, AFTER, "K and V of a token depend on all tokens before it."),
        Mutant("no extra keys", answers.no_extra, EXTRA, "Another adapter computes other K and V from the same tokens."),
        Mutant("keys run together", answers.keys_run_together, EXTRA, "An adapter x is not a salt x."),
        Mutant("None is empty", answers.none_is_empty, EXTRA, "No salt and the salt \"\" are two things."),
        Mutant("extra keys from the second block on", answers.not_in_the_first, EXTRA, "The first block depends on the model too."),
        Mutant("4 bytes a token", answers.four_bytes, ANY, "-1 and 2^32 raise OverflowError, in the middle of an allocation."),
    ],
    alternatives=[answers.packed, answers.as_json],
)  # fmt: skip
