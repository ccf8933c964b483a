"""One pass over a whole text against the caches themselves, fed a token at a time."""

from __future__ import annotations

import numpy as np
import pytest

from mini_engine.attention import Fp8Codec, IntCodec, KVScheme, causal_attention, kivi, lossy_attention

INT4 = IntCodec(4, group=8)
SCHEMES = {
    "exact": KVScheme(),
    "fp8": KVScheme(Fp8Codec(), Fp8Codec()),
    "int8": KVScheme(IntCodec(8), IntCodec(8)),
    "int4, newest kept": KVScheme(INT4, INT4, recent=5),
    "kivi": KVScheme(*kivi(2, group=8)),
    "kivi, newest kept": KVScheme(*kivi(2, group=8), recent=3),
    "values only per channel": KVScheme(*kivi(4, group=8)[::-1]),
    "window": KVScheme(window=5),
    "window and sinks": KVScheme(window=5, num_sinks=2),
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("T", [1, 7, 8, 9, 30])
def test_one_pass_equals_the_cache_fed_token_by_token(scheme, T):
    rng = np.random.default_rng(T)
    q, k, v = (rng.normal(size=(T, heads, 8)).astype(np.float32).astype(np.float64) for heads in (6, 2, 2))
    cache = scheme.cache(1, T, 2, 8)
    expected = []
    for t in range(T):
        keys, values = cache.append(0, k[t : t + 1], v[t : t + 1])
        expected.append(causal_attention(q[t : t + 1], keys, values, 0.4, offset=len(keys) - 1)[0])
    out = lossy_attention(q, k, v, 0.4, scheme)
    assert out.dtype == q.dtype
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12)
    if T == 30:
        exact = causal_attention(q, k, v, 0.4)
        assert np.allclose(out, exact, rtol=1e-9) == (scheme == KVScheme())


def test_a_scheme_is_codecs_or_a_window():
    with pytest.raises(ValueError, match="a codec for both, or for neither"):
        KVScheme(keys=IntCodec(8))
    with pytest.raises(ValueError, match="codecs or a window, not both"):
        KVScheme(IntCodec(8), IntCodec(8), window=4)
