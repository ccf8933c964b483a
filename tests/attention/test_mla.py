"""Latent attention: its two forms against each other, against a loop over single numbers, and against transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.attention import causal_attention, mla_absorbed, mla_expanded

FORMS = [mla_expanded, mla_absorbed]
NAMES = ("q_nope", "q_rope", "latent", "k_rope", "w_uk", "w_uv")


def random_inputs(T, S, H, Dn, Dr, Dv, Dc, seed=0):
    generator = np.random.default_rng(seed)
    shapes = ((T, H, Dn), (T, H, Dr), (S, Dc), (S, Dr), (H, Dn, Dc), (H, Dv, Dc))
    return {name: generator.normal(size=shape) for name, shape in zip(NAMES, shapes)}


def mla_by_loops(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset):
    """Straight from the definition: each head's key and value of a token, one number at a time."""
    (T, H, Dn), Dr, Dc, Dv = q_nope.shape, q_rope.shape[2], latent.shape[1], w_uv.shape[1]
    out = np.zeros((T, H, Dv))
    for t in range(T):
        for h in range(H):
            weights = []
            for s in range(offset + t + 1):
                key = [sum(w_uk[h, n, c] * latent[s, c] for c in range(Dc)) for n in range(Dn)]
                score = sum(q_nope[t, h, n] * key[n] for n in range(Dn))
                score += sum(q_rope[t, h, r] * k_rope[s, r] for r in range(Dr))
                weights.append(math.exp(scale * score))
            for d in range(Dv):
                value = [sum(w_uv[h, d, c] * latent[s, c] for c in range(Dc)) for s in range(len(weights))]
                out[t, h, d] = sum(w * v for w, v in zip(weights, value)) / sum(weights)
    return out


@pytest.mark.parametrize("form", FORMS)
@given(
    T=st.integers(1, 3), offset=st.integers(0, 3), extra=st.integers(0, 2), H=st.integers(1, 3), Dn=st.integers(1, 3),
    Dr=st.integers(1, 2), Dv=st.integers(1, 3), Dc=st.integers(1, 4),
)  # fmt: skip
def test_both_forms_equal_the_definition(form, T, offset, extra, H, Dn, Dr, Dv, Dc):
    inputs = random_inputs(T, offset + T + extra, H, Dn, Dr, Dv, Dc)
    inputs["latent"][offset + T :] = inputs["k_rope"][offset + T :] = np.nan  # what no query may see must not be read
    out = form(**inputs, scale=0.3, offset=offset)
    np.testing.assert_allclose(out, mla_by_loops(**inputs, scale=0.3, offset=offset), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("T", [1, 2, 16, 33])
def test_the_two_forms_are_equal(T):
    """DeepSeek-V2's proportions (128 : 64 : 128 : 512), a quarter of the size."""
    inputs = random_inputs(T, 33, 8, 32, 16, 32, 128)
    expanded, absorbed = (form(**inputs, scale=1 / math.sqrt(48), offset=33 - T) for form in FORMS)
    assert expanded.shape == (T, 8, 32)
    np.testing.assert_allclose(absorbed, expanded, rtol=0, atol=1e-12 * np.abs(expanded).max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 0.05), (np.float32, 2e-5)])
def test_output_has_the_dtype_of_q(form, dtype, tolerance):
    inputs = random_inputs(4, 9, 3, 6, 4, 5, 10)
    out = form(**{name: x.astype(dtype) for name, x in inputs.items()}, scale=0.3, offset=5)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, form(**inputs, scale=0.3, offset=5), rtol=0, atol=tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_is_rounded_once_at_the_end(form):
    """A latent of 512 numbers: summed in float16 the error would be many times that of the last rounding."""
    half = {name: x.astype(np.float16) for name, x in random_inputs(2, 20, 2, 16, 8, 16, 512).items()}
    exact = form(**{name: x.astype(np.float64) for name, x in half.items()}, scale=0.01, offset=18)
    out = form(**half, scale=0.01, offset=18)
    np.testing.assert_allclose(out, exact, rtol=np.finfo(np.float16).eps, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_the_query_alone_says_what_type_comes_out(form):
    inputs = random_inputs(4, 9, 3, 6, 4, 5, 10)
    halved = inputs | {name: inputs[name].astype(np.float16) for name in ("q_nope", "q_rope")}
    assert form(**halved, scale=0.3, offset=5).dtype == np.float16
    stored = inputs | {name: inputs[name].astype(np.float16) for name in ("latent", "k_rope")}
    assert form(**stored, scale=0.3, offset=5).dtype == np.float64


@pytest.mark.parametrize("form", FORMS)
def test_nothing_comes_from_the_rotary_key_into_the_output(form):
    """The shared key decides where to look; the values are the latent's alone."""
    inputs = random_inputs(2, 6, 3, 4, 4, 5, 8)
    inputs["latent"][:] = inputs["latent"][0]  # all values alike: whatever the weights are, the output is that value
    out = form(**inputs, scale=0.5, offset=4)
    np.testing.assert_allclose(out, np.broadcast_to(inputs["w_uv"] @ inputs["latent"][0], out.shape), rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "axis", "named"),
    [
        ("q_nope", 0, "q_rope"), ("q_nope", 1, "q_rope"), ("q_nope", 2, "w_uk"), ("q_rope", 2, "k_rope"), ("latent", 0, "k_rope"),
        ("latent", 1, "w_uk"), ("k_rope", 0, "k_rope"), ("w_uk", 0, "w_uk"), ("w_uv", 0, "w_uv"), ("w_uv", 2, "w_uv"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_named(form, name, axis, named):
    inputs = random_inputs(2, 4, 3, 5, 6, 7, 8)
    inputs[name] = np.delete(inputs[name], 0, axis=axis)
    with pytest.raises(ValueError, match=f"{named} has shape"):
        form(**inputs, scale=1.0, offset=2)


@pytest.mark.parametrize("family", ["V2", "V3"])
@pytest.mark.parametrize("form", FORMS)
def test_both_forms_equal_transformers_attention(family, form):
    """One attention layer of DeepSeek, from the latents in its own cache to the input of its output projection."""
    import torch
    import transformers

    sizes = {
        "hidden_size": 48, "num_attention_heads": 4, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12,
        "v_head_dim": 10, "q_lora_rank": None, "num_hidden_layers": 1, "first_k_dense_replace": 1, "vocab_size": 30,
        "intermediate_size": 20,
    }  # fmt: skip
    torch.manual_seed(0)
    config = getattr(transformers, f"Deepseek{family}Config")(**sizes)
    model = getattr(transformers, f"Deepseek{family}ForCausalLM")(config).double().eval()
    attention = model.model.layers[0].self_attn
    seen = {}
    attention.o_proj.register_forward_pre_hook(lambda _, args: seen.update(out=args[0]))

    ids = torch.arange(11)[None]
    with torch.inference_mode():
        cache = model(ids, use_cache=True).past_key_values.layers[0]
        hidden = model.model.layers[0].input_layernorm(model.model.embed_tokens(ids))
        # The rotated queries, through the layer's own projection and rotation.
        q = attention.q_proj(hidden).view(1, 11, 4, 20).transpose(1, 2)
        q_rope = rotated_by_transformers(model, family, q[..., 12:])
    w_up = attention.kv_b_proj.weight.detach().numpy().reshape(4, 22, 24)
    out = form(
        q[0, :, :, :12].transpose(0, 1).numpy(), q_rope[0].transpose(0, 1).numpy(), cache.keys[0, 0].numpy(),
        cache.values[0, 0].numpy(), w_up[:, :12], w_up[:, 12:], 20**-0.5,
    )  # fmt: skip
    # Their rotation is computed in float32, whatever the model's type.
    np.testing.assert_allclose(out.reshape(11, 40), seen["out"][0].numpy(), rtol=0, atol=1e-6 * np.abs(out).max())


def rotated_by_transformers(model, family, q):
    import torch
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    position = model.model.rotary_emb(q, position_ids=torch.arange(q.shape[2])[None])
    if family == "V2":
        return v2.apply_rotary_emb(q, q, position)[0]
    return v3.apply_rotary_pos_emb_interleave(q, q, *position)[0]


def rotate(x, positions):
    """Rotary embedding, by complex numbers: dimension i and i + D/2 are one of them."""
    half = x.shape[-1] // 2
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * positions[:, None, None] * 10.0 ** -np.arange(half))
    return np.concatenate((z.real, z.imag), axis=-1)


def test_no_single_matrix_serves_two_distances():
    """The matrix between query and latent, R_(j - i) W_UK, differs from one distance to the next."""
    w_uk = random_inputs(1, 1, 1, 6, 4, 5, 8)["w_uk"]

    def between(distance: int) -> np.ndarray:
        return rotate(w_uk[0].T[:, None], np.full(8, distance))[:, 0].T  # each column of W_UK is turned like a key

    assert not np.allclose(between(0), between(1))
    np.testing.assert_allclose(between(0), w_uk[0])


def test_values_may_have_a_size_of_their_own():
    q, k, v = (np.random.default_rng(0).normal(size=shape) for shape in ((3, 4, 6), (5, 2, 6), (5, 2, 9)))
    whole = causal_attention(q, k, v, 0.4, offset=2)
    assert whole.shape == (3, 4, 9)
    padded = causal_attention(*(np.pad(x, [(0, 0), (0, 0), (0, 9 - x.shape[-1])]) for x in (q, k)), v, 0.4, offset=2)
    np.testing.assert_allclose(whole, padded, rtol=1e-12)
