"""What a compiled kernel needs of a processor, read from its machine code. No GPU is asked.

NVIDIA: cuobjdump and nvdisasm, which come with Triton. AMD: the assembly's own notes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Bytes of shared memory that one block of threads may have.
SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "gfx942": 64 * 1024}

WIDE_NVIDIA = re.compile(r"\b(?:LDG|LDGSTS)\.E\.(?:\w+\.)*128\b")
WIDE_AMD = re.compile(r"\b(?:global|buffer|flat)_load_(?:dwordx4|b128)\b")
MATRIX_NVIDIA = re.compile(r"\b(?:HMMA|HGMMA|DMMA|IMMA|QGMMA|UTCHMMA)\.")
MATRIX_AMD = re.compile(r"\bv_mfma_")
SPILL_NVIDIA = re.compile(r"\b(?:STL|LDL)\b")


@dataclass(frozen=True)
class Needs:
    """Registers of a thread, registers spilled (NVIDIA: instructions that do), bytes of stack and of shared memory;
    instructions that load 16 bytes a thread from memory, and that multiply matrices.
    """

    registers: int
    spills: int
    stack: int
    shared: int
    wide_loads: int
    matrix_instructions: int

    def faults(self, arch: str, *, wide: bool) -> list[str]:
        """Why a kernel with these needs is slow or does not start on `arch`; nothing if it is fine.

        wide: it must load 16 bytes a thread at a time.
        """
        found = []
        if self.spills:
            found.append(f"{self.spills} spills")
        if self.stack:
            found.append(f"{self.stack} bytes of stack")
        if self.shared > SHARED_LIMIT[arch]:
            found.append(f"{self.shared} bytes of shared memory, {arch} has {SHARED_LIMIT[arch]}")
        if wide and not self.wide_loads:
            found.append("no load of 16 bytes a thread: addresses are not known to be aligned")
        return found


def needs(compiled: Any) -> Needs:
    """Of what Triton's compiler returned, for NVIDIA or AMD."""
    shared = compiled.metadata.shared  # of the compiler: it does not mind if no processor has that much
    if "amdgcn" in compiled.asm:
        text = compiled.asm["amdgcn"]
        note = {name: int(n) for name, n in re.findall(r"^\s*\.(\w+):\s+(\d+)$", text, re.MULTILINE)}
        # Scalar registers that spill go to lanes of vector registers, not to memory.
        return Needs(
            registers=note["vgpr_count"],
            spills=note["vgpr_spill_count"],
            stack=note["private_segment_fixed_size"],
            shared=shared,
            wide_loads=len(WIDE_AMD.findall(text)),
            matrix_instructions=len(MATRIX_AMD.findall(text)),
        )
    usage = _nvidia_tool("cuobjdump", "-res-usage", cubin=compiled.asm["cubin"])
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", usage)[0]
    text = machine_code(compiled)
    return Needs(
        registers=int(registers),
        spills=len(SPILL_NVIDIA.findall(text)),
        stack=int(stack),
        shared=shared,
        wide_loads=len(WIDE_NVIDIA.findall(text)),
        matrix_instructions=len(MATRIX_NVIDIA.findall(text)),
    )


def machine_code(compiled: Any) -> str:
    """The instructions, as text: SASS or AMD's assembly."""
    if "amdgcn" in compiled.asm:
        return compiled.asm["amdgcn"]
    return _nvidia_tool("nvdisasm", "-c", cubin=compiled.asm["cubin"])


def _nvidia_tool(name: str, option: str, *, cubin: bytes) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        return subprocess.run([tool, option, path], capture_output=True, text=True, check=True).stdout
