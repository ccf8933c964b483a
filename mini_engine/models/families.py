"""The model families that can be run, as data: what tells one architecture from another is a line of this table."""

from __future__ import annotations

from dataclasses import dataclass

from mini_engine.catalog import ModelSpec
from mini_engine.models.errors import UnsupportedModelError


@dataclass(frozen=True)
class Family:
    """How an architecture departs from a plain Llama."""

    model_type: str  # the name in its config.json
    attention: str = "grouped"  # the attention block: "grouped" (MHA, GQA, MQA) or "latent" (MLA)


FAMILIES = {
    "LlamaForCausalLM": Family("llama"),
}
"""Architecture, as in `config.json`, to family."""


def family_of(spec: ModelSpec) -> Family:
    """The family of a spec's architecture. UnsupportedModelError lists those that can be built."""
    if spec.architecture not in FAMILIES:
        raise UnsupportedModelError(
            f"architecture {spec.architecture!r} cannot be built; those that can are {', '.join(FAMILIES)}"
        )
    return FAMILIES[spec.architecture]
