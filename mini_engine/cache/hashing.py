"""The name of a block's content: a SHA-256 chain over everything that the K/V of the block depends on.

K and V of a token depend on all tokens before it, on the model, and on the adapter. So the name of a block is a hash of
its own tokens and of its parent's name, and the first block's parent is a root made from the model, the adapter and a
salt that keeps tenants apart. The same content has the same name in every process and on every machine.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b, sha256

DIGEST_SIZE = 32  # bytes
Namespace = tuple[str, str | None, str | None]  # model, adapter, salt
_ROOT_TAG = b"mini_engine/kv-block/1"
_BIG_ENDIAN = sys.byteorder == "big"  # names are made from little-endian tokens everywhere


def pack_tokens(token_ids: Sequence[int]) -> array[int]:
    """Token ids as an array of signed 64-bit integers. ValueError for anything that is not such an integer."""
    try:
        return array("q", token_ids)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be integers of at most 64 bits: {error}") from error


class BlockHasher:
    """Names blocks for one model, adapter and salt.

    None and "" are different adapters, and different salts: a request without a salt never meets one with a salt.
    An adapter that may be reloaded under one name needs its version in the name.
    """

    def __init__(self, model: str = "", adapter: str | None = None, salt: str | None = None) -> None:
        self.model, self.adapter, self.salt = model, adapter, salt
        # What must be equal, besides the tokens, for two requests to share K/V.
        self.namespace: Namespace = (model, adapter, salt)
        self.root = sha256(_ROOT_TAG + b"".join(_encode(key) for key in self.namespace)).digest()

    def for_request(self, adapter: str | None, salt: str | None) -> BlockHasher:
        """The hasher of the same kind and model for another adapter and salt."""
        return type(self)(self.model, adapter, salt)

    def hash_block(self, parent: bytes | None, token_ids: Sequence[int]) -> bytes:
        """Name the block that holds token_ids and follows the block named parent (None: it is the first).

        ValueError when parent is not a name made by this function, or a token is not an integer.
        """
        if parent is None:
            parent = self.root
        elif len(parent) != DIGEST_SIZE:
            raise ValueError(f"parent has {len(parent)} bytes, a block's name has {DIGEST_SIZE}")
        tokens = token_ids if isinstance(token_ids, array) else pack_tokens(token_ids)
        if _BIG_ENDIAN:
            tokens = tokens[:]
            tokens.byteswap()
        return sha256(parent + tokens.tobytes()).digest()


class WeakHasher(BlockHasher):
    """A hasher whose names collide all the time: the sum of the tokens modulo 7, whatever came before.

    For experiments: with it, only the comparison of tokens on a hit stands between a request and someone else's K/V.
    """

    def hash_block(self, parent: bytes | None, token_ids: Sequence[int]) -> bytes:
        """One of seven names, whatever came before: it collides all the time."""
        return bytes([sum(token_ids) % 7])


class ShortHasher(BlockHasher):
    """A 64-bit chain over the tokens alone, as small allocators often have it.

    For experiments: no model, adapter or salt in it, and the first block's parent, 0, could be a real block's name.
    Tokens must be in 0 .. 2^32 - 1.
    """

    def hash_block(self, parent: bytes | None, token_ids: Sequence[int]) -> bytes:
        """8 bytes of BLAKE2b over parent and tokens."""
        packed = b"".join(token.to_bytes(4, "little") for token in token_ids)
        return blake2b((parent or bytes(8)) + packed, digest_size=8).digest()


class TokenChain:
    """The full blocks of one sequence as a prefix index sees them: their tokens, and their names once someone asks.

    tokens[i] are the tokens of block i. Names are made on demand and kept, so that no block is hashed twice.
    """

    __slots__ = ("_digests", "block_size", "collided", "hasher", "tokens")

    def __init__(self, hasher: BlockHasher, block_size: int) -> None:
        self.hasher = hasher
        self.block_size = block_size
        self.tokens: list[array[int]] = []
        self.collided = False  # an index has met other content under one of our names
        self._digests: list[bytes] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take in the blocks that have become full. token_ids is the whole sequence, and only ever grows."""
        size = self.block_size
        done, full = len(self.tokens) * size, len(token_ids) // size * size
        if done < full:
            packed = pack_tokens(token_ids[done:full])
            self.tokens += [packed[i : i + size] for i in range(0, full - done, size)]

    def digests(self, num_blocks: int) -> list[bytes]:
        """The names of the blocks of the chain, the first num_blocks at least."""
        digests = self._digests
        if len(digests) < num_blocks:
            hash_block = self.hasher.hash_block
            digest = digests[-1] if digests else None
            for tokens in self.tokens[len(digests) : num_blocks]:
                digest = hash_block(digest, tokens)
                digests.append(digest)
        return digests

    def copy(self, num_blocks: int) -> TokenChain:
        """The chain of a branch that shares the first num_blocks blocks."""
        chain = TokenChain(self.hasher, self.block_size)
        chain.tokens = self.tokens[:num_blocks]
        chain._digests = self._digests[:num_blocks]
        return chain


def _encode(key: str | None) -> bytes:
    """A key as bytes, so that no two lists of keys have the same concatenation. ValueError unless a string or None."""
    if key is None:
        return b"\0"
    if not isinstance(key, str):
        raise ValueError(f"model, adapter and salt are strings, {key!r} is not: give str(...) of it")
    data = key.encode()
    return b"\1" + len(data).to_bytes(8, "little") + data
