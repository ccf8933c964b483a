"""Names of blocks for lesson 09: right ones, written in several ways, and the wrong ones that people write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b, sha256

Tokens = Sequence[int]


def block_hash(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    """SHA-256 of a text that no other block has: repr puts quotes and commas where they belong."""
    return sha256(repr((parent, [int(token) for token in token_ids], extra)).encode()).digest()


def packed(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    """Right: the tokens as decimals with a comma behind each; the extra keys make the first parent, and so are in every name after it."""
    if parent is None:
        keys = [b"\0" if key is None else b"\1" + key.encode() for key in extra]
        parent = sha256(b"".join(len(key).to_bytes(8, "little") + key for key in keys)).digest()
    return sha256(parent + "".join(f"{int(token)}," for token in token_ids).encode()).digest()


def as_json(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    """Right: JSON, and 16 bytes of BLAKE2b."""
    text = json.dumps([parent.hex() if parent else None, [int(t) for t in token_ids], list(extra)])
    return blake2b(text.encode(), digest_size=16).digest()


def tokens_only(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(None, token_ids, extra)


def their_sum(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, [sum(token_ids)], extra)


def their_set(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, sorted(token_ids), extra)


def run_together(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    digits = "".join(map(str, token_ids))
    return sha256((parent or b"") + digits.encode() + repr(extra).encode()).digest()


def no_extra(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, ())


def keys_run_together(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, ("".join(key or "" for key in extra),))


def none_is_empty(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, tuple(key or "" for key in extra))


def not_in_the_first(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, extra if parent else ())


def four_bytes(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    data = b"".join(int(token).to_bytes(4, "little") for token in token_ids)
    return sha256((parent or b"") + data + repr(extra).encode()).digest()


def one_byte(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, [token % 256 for token in token_ids], extra)


def eight_bytes(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, extra)[:8]


def a_number(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> int:
    return hash((parent, tuple(token_ids), extra))


def its_ends(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, [len(token_ids), token_ids[0], token_ids[-1]], extra)


def two_bytes_of_the_parent(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent and parent[:2], token_ids, extra)


def sixteen_bytes_of_a_number(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return hash((parent, tuple(token_ids), extra)).to_bytes(16, "little", signed=True)


def none_is_a_word(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, tuple(str(key) for key in extra))


def keys_with_a_bar(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, token_ids, ("|".join("-" if key is None else f"={key}" for key in extra),))


def eight_bytes_a_token(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return block_hash(parent, [int(token) % 2**64 for token in token_ids], extra)


def floats(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return sha256(repr((parent, [float(token) for token in token_ids], extra)).encode()).digest()


def a_list_of_them(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return sha256(repr((parent, list(token_ids), extra)).encode()).digest()


def type_matters(parent: bytes | None, token_ids: Tokens, extra: tuple[str | None, ...]) -> bytes:
    return sha256(repr((parent, token_ids, extra)).encode()).digest()
