"""One set of weights in every peer's format: the engine's own, rounded to fp16 as it reads them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def write_f16_gguf(source: Path, target: Path) -> Path:
    """A quantised GGUF file with its matrices as F16 numbers; vectors stay fp32, everything else is kept."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":  # the writer writes these itself
            continue
        if field.name == "general.file_type":
            writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
        elif field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float16 if values.ndim > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target
