"""Names of blocks: what they depend on, and that they are the same everywhere."""

from __future__ import annotations

import hashlib
import itertools
import struct
import subprocess
import sys

import pytest

from mini_engine.cache import BlockHasher, ShortHasher, TokenChain, pack_tokens


def test_a_name_is_sha256_of_parent_and_little_endian_tokens():
    hasher = BlockHasher("m")
    first = hasher.hash_block(None, [1, 2])
    assert first == hashlib.sha256(hasher.root + struct.pack("<2q", 1, 2)).digest()
    assert hasher.hash_block(first, [3]) == hashlib.sha256(first + struct.pack("<q", 3)).digest()


def test_a_name_depends_on_everything_that_keys_and_values_depend_on():
    roots = itertools.product(["", "m", "n"], [None, "", "a", "a@2"], [None, "", "a", "s"])
    hashers = [BlockHasher(*keys) for keys in roots]
    names = {hasher.hash_block(None, [1, 2, 3]) for hasher in hashers}
    assert len(names) == len(hashers)
    hasher = hashers[0]
    parent = hasher.hash_block(None, [1, 2, 3])
    assert len({parent, hasher.hash_block(parent, [1, 2, 3]), hasher.hash_block(None, [3, 2, 1])}) == 3


def test_keys_cannot_be_shifted_from_one_field_to_the_next():
    assert BlockHasher("ab", "c").root != BlockHasher("a", "bc").root
    assert BlockHasher("m", "s", None).root != BlockHasher("m", None, "s").root


def test_names_are_equal_in_every_process_lmcache_2136():
    """LMCache #2136, #1403, #1139; vllm #51875: hash(None) and random roots differ from process to process."""
    code = (
        "from mini_engine.cache import BlockHasher\n"
        "h = BlockHasher('m', 'a', 's')\n"
        "print(h.hash_block(h.hash_block(None, [1, 2, 3]), [4, 5, 6]).hex())"
    )
    names = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    hasher = BlockHasher("m", "a", "s")
    assert names == {hasher.hash_block(hasher.hash_block(None, [1, 2, 3]), [4, 5, 6]).hex() + "\n"}


def test_reference_values_of_the_short_hash():
    """Values of a widely copied 64-bit chain: blake2b, 8 bytes, parent and tokens little-endian, first parent 0."""
    hasher = ShortHasher()
    first = hasher.hash_block(None, range(16))
    second = hasher.hash_block(first, range(16, 32))
    assert int.from_bytes(first, "little") == 10251598853290956434
    assert int.from_bytes(second, "little") == 14413796365232270483
    assert int.from_bytes(hasher.hash_block(None, [1, 2, 3, 4]), "little") == 658132497017838498


@pytest.mark.parametrize("key", [1, b"a", ("a", 2)])
def test_keys_must_be_strings(key):
    with pytest.raises(ValueError, match="are strings"):
        BlockHasher("m", adapter=key)
    with pytest.raises(ValueError, match="are strings"):
        BlockHasher("m").for_request(None, key)


@pytest.mark.parametrize("token", [2**63, -(2**63) - 1, 1.5, "a", None])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(ValueError, match="token ids must be integers"):
        BlockHasher().hash_block(None, [1, token])


def test_negative_and_wide_tokens_are_tokens_to_the_hash():
    hasher = BlockHasher()
    assert len({hasher.hash_block(None, [token]) for token in (-1, 1, 2**32 - 1, 2**32, 2**63 - 1)}) == 5


def test_array_scalars_hash_like_the_integers_they_are():
    numpy = pytest.importorskip("numpy")
    assert BlockHasher().hash_block(None, list(numpy.arange(4))) == BlockHasher().hash_block(None, [0, 1, 2, 3])


def test_a_parent_that_is_no_name_is_refused():
    with pytest.raises(ValueError, match="parent has 3 bytes"):
        BlockHasher().hash_block(b"abc", [1])


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_a_chain_names_full_blocks_only_however_it_grew(size):
    tokens = list(range(3 * size + size // 2))
    at_once, by_steps = TokenChain(BlockHasher("m"), size), TokenChain(BlockHasher("m"), size)
    at_once.extend(tokens)
    for end in range(len(tokens) + 1):
        by_steps.extend(tokens[:end])
        assert len(by_steps.tokens) == end // size
    expected, parent = [], None
    for i in range(3):
        parent = BlockHasher("m").hash_block(parent, tokens[i * size : (i + 1) * size])
        expected.append(parent)
    assert at_once.digests(3) == by_steps.digests(3) == expected
    assert at_once.copy(2).digests(2) == expected[:2]


def test_a_branch_takes_over_what_is_shared_and_goes_its_own_way():
    parent = TokenChain(BlockHasher(), 2)
    parent.extend([1, 2, 3, 4, 5, 6])
    names, tokens = list(parent.digests(3)), list(parent.tokens)
    branch = parent.copy(2)
    assert branch.tokens == tokens[:2]  # no token is packed again
    assert branch.digests(2) == names[:2]
    branch.extend([1, 2, 3, 4, 7, 8])
    assert branch.digests(3)[2] != names[2]
    assert (parent.tokens, parent.digests(3)) == (tokens, names)


def test_no_block_is_hashed_twice():
    class Counting(BlockHasher):
        num_hashed = 0

        def hash_block(self, parent, token_ids):
            self.num_hashed += 1
            return super().hash_block(parent, token_ids)

    chain = TokenChain(Counting(), 2)
    chain.extend(range(20))
    for num_blocks in (0, 3, 3, 10, 2):
        chain.digests(num_blocks)
    assert chain.hasher.num_hashed == 10


def test_packed_tokens_are_64_bit():
    assert pack_tokens([1, 2]).itemsize == 8
