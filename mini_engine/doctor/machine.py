"""The machine: processors, GPU, Triton, memory, disk, JupyterLab's port, fonts."""

from __future__ import annotations

import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mini_engine.doctor.environment import requirements, version
from mini_engine.doctor.finding import Check

KERNEL_MEMORY = 3 * 2**29
"""Bytes: somewhat more than the largest lesson took (benchmarks/results/lesson_costs.json)."""

DISK = 2**29
"""Bytes: the real model as it is unpacked, and some notebooks."""

PORT = 8888
"""JupyterLab's."""


def usable_cpus() -> int:
    """Processors this process may use: its affinity, and in a container the quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return count


def check_torch() -> Iterator[Check]:
    """Does torch start more threads than there are processors, and does it see the GPU?"""
    import torch

    threads, cpus = torch.get_num_threads(), usable_cpus()
    setting = os.environ.get("OMP_NUM_THREADS", "not set")
    found = f"{threads} for {cpus} usable CPUs, OMP_NUM_THREADS {setting}"
    if threads <= cpus:
        yield Check("threads", "ok", found)
    else:
        found += ": threads that wait for a processor make every step slow"
        yield Check("threads", "warning", found, f"set OMP_NUM_THREADS={cpus}")

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Check("cuda", "ok", f"torch {torch.__version__} on {names}")
    elif shutil.which("nvidia-smi"):
        found = f"there is an NVIDIA driver, but torch {torch.__version__} does not see a GPU"
        yield Check("cuda", "warning", found, "install a CUDA build of torch that fits the driver")
    else:
        yield Check("cuda", "ok", f"no GPU: torch {torch.__version__} runs on the CPU, and so does the whole course")


def check_triton() -> Iterator[Check]:
    """Is Triton here, and how will the kernels run?"""
    found = version("triton")
    if found is None and sys.platform != "linux":
        yield Check("triton", "ok", f"not made for {sys.platform}: everything but the Triton kernels runs")
    elif found is None:
        pin = next((line.split(";")[0] for line in requirements() if line.startswith("triton")), "triton")
        yield Check("triton", "warning", "not installed", f'"{sys.executable}" -m pip install "{pin}"')
    else:
        import torch

        if os.environ.get("TRITON_INTERPRET") == "1":
            mode = "interpreter (TRITON_INTERPRET=1)"
        elif torch.cuda.is_available():
            mode = "compiled for the GPU"
        else:
            mode = "no GPU: kernels run in the interpreter, TRITON_INTERPRET=1"
        yield Check("triton", "ok", f"{found}, {mode}")


def free_memory() -> int | None:
    """Bytes that this process may still take, within the machine and the container; None where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text() for name in ("memory.max", "memory.current"))
        return min(free, int(limit) - int(used))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return free


def check_memory() -> Iterator[Check]:
    """Is there room for a lesson's kernel?"""
    free = free_memory()
    if free is None:
        return
    found = f"{free / 2**30:.1f} GB free"
    if free < KERNEL_MEMORY:
        found += f", a lesson may take {KERNEL_MEMORY / 2**30:g}: its kernel may be killed without a word"
        yield Check(
            "memory", "warning", found, "shut down other kernels (in JupyterLab: Running Terminals and Kernels)"
        )
    else:
        yield Check("memory", "ok", found)


def check_disk() -> Iterator[Check]:
    """Is there room to save notebooks, and for the real model?"""
    free = shutil.disk_usage(sys.prefix).free
    found = f"{free / 2**30:.1f} GB free at {sys.prefix}"
    if free < DISK:
        yield Check("disk", "warning", f"{found}: notebooks may not be saved", "make room")
    else:
        yield Check("disk", "ok", found)


def check_port() -> Iterator[Check]:
    """Is JupyterLab's usual port free? If not, JupyterLab takes the next one, and the old address shows another's files."""
    with socket.socket() as probe:
        probe.settimeout(1)
        taken = probe.connect_ex(("127.0.0.1", PORT)) == 0
    if taken:
        found = f"{PORT} is taken, perhaps by a JupyterLab that still runs"
        yield Check(
            "port", "warning", found, "open the address that `make lab` prints, or `make lab ARGS='--port 9999'`"
        )
    else:
        yield Check("port", "ok", f"{PORT} is free for JupyterLab")


def check_fonts() -> Iterator[Check]:
    """Can a browser on this machine show the Chinese lessons? Pictures hold no Chinese."""
    lister = shutil.which("fc-list")
    if lister is None:
        return  # Windows and macOS bring such fonts
    listed = subprocess.run([lister, ":lang=zh", "family"], capture_output=True, text=True, check=False).stdout
    families = sorted({line.split(",")[0] for line in listed.splitlines() if line.strip()})
    if families:
        yield Check("fonts", "ok", f"Chinese lessons can be shown, for example in {families[0]}")
    else:
        found = "none for Chinese: a browser on this machine shows the Chinese lessons as boxes"
        yield Check(
            "fonts", "warning", found, "install one, such as Debian's fonts-noto-cjk; the English lessons need none"
        )
