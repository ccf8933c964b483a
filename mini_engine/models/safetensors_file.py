"""Reading a .safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes.

Read here and not with the library of that name, because NumPy has no bfloat16 and because an error should say which tensor is cut off.
Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from mini_engine.models.errors import CorruptModelError, UnsupportedModelError

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
REMEDY = "the download is incomplete or damaged: fetch it again"


class SafetensorsFile:
    """One file, mapped into memory: nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        """Check the header against the file's size. CorruptModelError, or UnsupportedModelError for quantised tensors."""
        self.path = path
        if not path.is_file():
            raise CorruptModelError(f"{path}: expected a file, found a folder; {REMEDY}")
        size = path.stat().st_size
        if size < 8:
            raise CorruptModelError(f"{path}: {size} bytes are too few for a safetensors file; {REMEDY}")
        self._data = np.memmap(
            path, dtype=np.uint8, mode="c"
        )  # private pages: torch warns about memory it cannot write
        header_size = int(self._data[:8].view("<u8")[0])
        if header_size > size - 8:
            raise CorruptModelError(
                f"{path}: the header should have {header_size} bytes, the file ends after {size - 8}; {REMEDY}"
            )
        try:
            header = json.loads(self._data[8 : 8 + header_size].tobytes())
            header.pop("__metadata__", None)
            self._tensors: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
            for name, entry in header.items():
                begin, end = map(int, entry["data_offsets"])
                self._tensors[name] = str(entry["dtype"]), tuple(map(int, entry["shape"])), begin, end
        except (ValueError, AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise CorruptModelError(
                f"{path}: the header is not that of a safetensors file ({error}); {REMEDY}"
            ) from None
        self._start = 8 + header_size
        for name, (dtype, shape, begin, end) in self._tensors.items():
            if dtype not in DTYPES:
                raise UnsupportedModelError(
                    f"{path}: the tensor {name} is stored as {dtype}, supported are {', '.join(DTYPES)}; "
                    "quantised safetensors are not: use the unquantised model or a GGUF file"
                )
            needed = math.prod(shape) * DTYPES[dtype].itemsize
            if begin < 0 or min(shape, default=0) < 0 or end - begin != needed:
                raise CorruptModelError(
                    f"{path}: the tensor {name} {list(shape)} in {dtype} needs {needed} bytes, its header gives it {begin} .. {end}; {REMEDY}"
                )
            if self._start + end > size:
                raise CorruptModelError(
                    f"{path}: the tensor {name} ends at byte {self._start + end}, the file after {size}; {REMEDY}"
                )

        covered = 0  # the format allows neither gaps nor overlaps
        for begin, end, name in sorted((begin, end, name) for name, (_, _, begin, end) in self._tensors.items()):
            if begin != covered:
                raise CorruptModelError(
                    f"{path}: the tensor {name} begins at {begin}, the one before ends at {covered}; {REMEDY}"
                )
            covered = end
        if self._start + covered != size:
            raise CorruptModelError(f"{path}: {size - self._start - covered} bytes follow the last tensor; {REMEDY}")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{tensor name: shape}, from the header."""
        return {name: shape for name, (_, shape, _, _) in self._tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """The tensor as float16, float32 or float64; bfloat16 is widened to float32, which loses nothing."""
        dtype, shape, begin, end = self._tensors[name]
        raw = self._data[self._start + begin : self._start + end]
        if raw.ctypes.data % DTYPES[dtype].itemsize:
            raw = raw.copy()
        values = raw.view(DTYPES[dtype]).view(np.ndarray).reshape(shape)
        return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values
