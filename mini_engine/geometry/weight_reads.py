"""What a decode step reads of the weights: not the embedding table, and of the experts those its tokens are routed to."""

from __future__ import annotations

from dataclasses import dataclass

from mini_engine.catalog import ModelSpec


@dataclass(frozen=True)
class Reads:
    """Parameters that a decode step reads. For a dense model all three are equal."""

    least: int
    """When all tokens go to the same experts; the floor of a step's time counts this."""
    expected: int
    """When every token draws its experts at random, each as likely as any other."""
    most: int
    """When no two tokens share an expert, as long as there are experts left."""


def lookup_params(model: ModelSpec) -> int:
    """Parameters of tables of which a token reads one row: the input embedding, unless the head reads it, and positions."""
    embedding = 0 if model.tie_word_embeddings else model.vocab_size
    return (embedding + model.learned_positions) * model.hidden_size


def idle_params(model: ModelSpec) -> int:
    """Parameters of the routed experts that one token does not use."""
    matrices = 3 if model.gated_mlp else 2
    expert = matrices * model.hidden_size * model.moe_intermediate_size
    return model.num_moe_layers * (model.num_experts - model.num_experts_per_tok) * expert


def reads(model: ModelSpec, total: int, active: int, batch: int) -> Reads:
    """What a step of `batch` tokens reads of `total` parameters, `active` of them used per token."""
    least = max(1, active - lookup_params(model))
    spare, per_token = total - active, model.num_experts_per_tok
    idle = model.num_experts - per_token
    if idle <= 0 or not spare:
        return Reads(least, least, least)
    expected = least + round(spare * ((expected_experts(model, batch) - per_token) / idle))
    return Reads(least, expected, least + spare * (most_experts(model, batch) - per_token) // idle)


def expected_experts(model: ModelSpec, batch: int) -> float:
    """Different experts of one layer that `batch` tokens need, on average, under uniform routing."""
    untouched = (1 - model.num_experts_per_tok / model.num_experts) ** batch
    return model.num_experts * (1 - untouched)


def most_experts(model: ModelSpec, batch: int) -> int:
    """Different experts of one layer that `batch` tokens need at most."""
    return min(model.num_experts, batch * model.num_experts_per_tok)
