"""How a `config.json` says that its weights are stored in fewer bits: the method and the bits, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mini_engine.arguments import shown

BITS = ("bits", "w_bit", "nbits", "weight_bits", "num_bits")
BITS_BY_METHOD = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "nvfp4": 4, "bitnet": 2}
SECTIONS = ("quantization_config", "compression_config", "quantization")


def quantization(*configs: Mapping[str, Any]) -> str:
    """'gptq, 4 bits', or '' when none of `configs` has a quantization. ValueError when it is no object."""
    for config in configs:
        for name in SECTIONS:
            section = config.get(name)
            if section is None:
                continue
            if not isinstance(section, Mapping):
                raise ValueError(f"{name}={shown(section)} must be an object")
            if section:
                return _words(section)
    return ""


def _words(section: Mapping[str, Any]) -> str:
    method = str(section.get("quant_method") or section.get("quant_algo") or section.get("quant_type") or "").lower()
    found = sorted(set(_bits(section))) or [BITS_BY_METHOD[name] for name in (method,) if name in BITS_BY_METHOD]
    bits = " and ".join(f"{number:g}" for number in found) or "an unknown number of"
    return f"{method[:40] + ', ' if method else ''}{bits} bits"


def _bits(section: Mapping[str, Any]) -> Iterator[float]:
    """Every number of bits that the section gives for weights, wherever it is written."""
    for name in BITS:
        value = section.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 64:
            yield value
    for name, bits in (("load_in_4bit", 4), ("load_in_8bit", 8), ("_load_in_4bit", 4), ("_load_in_8bit", 8)):
        if section.get(name) is True:
            yield bits
    weights = section.get("weights")
    if isinstance(weights, str) and weights.removeprefix("int").removeprefix("float").isdecimal():  # quanto, EETQ
        yield int(weights.removeprefix("int").removeprefix("float"))
    elif isinstance(weights, Mapping):
        yield from _bits(weights)
    groups = section.get("config_groups")  # compressed-tensors
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping):
            yield from _bits(group)
