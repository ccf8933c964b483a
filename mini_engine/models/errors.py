"""What can be wrong with a model, as three exceptions. Every message names the file, what was found, and the remedy."""

from __future__ import annotations


class ModelNotFoundError(FileNotFoundError):
    """No model has that name, or its files are not there."""


class UnsupportedModelError(ValueError):
    """A sound model that this engine does not implement: another architecture, another RoPE scaling, quantised safetensors."""


class CorruptModelError(ValueError):
    """A damaged or incomplete model: truncated, a tensor missing or of the wrong shape, no tokenizer."""
