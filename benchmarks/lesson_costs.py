"""What a learner's run of a lesson costs the machine: peak memory, CPU seconds and seconds, from top to bottom, unsolved.

    python benchmarks/lesson_costs.py [NN ...] [--output PATH]

Each lesson runs in a fresh kernel, one after the other. Memory is the resident set of the kernel and all its children, added up
20 times a second; pages that they share count in each. OMP_NUM_THREADS is 1, as where cores are shared, unless it is set. JupyterLab's own
server is measured without a page open. `tools/results.py` makes the table of docs/teaching/classroom.md from the report.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import psutil
from common.report import RESULTS, store
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
INTERVAL = 0.05  # seconds between two looks at the memory
CELL_SECONDS = 900  # a busy machine is no fault
LAB_SECONDS = 60


def tree(root: psutil.Process) -> list[psutil.Process]:
    """A process and everything that it started, as far as it still runs."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def resident(root: psutil.Process) -> int:
    """Bytes in memory of a process and everything that it started."""
    total = 0
    for process in tree(root):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:  # it has just ended
            continue
    return total


def cpu_seconds(root: psutil.Process) -> float:
    """CPU seconds of a process, of its children that have ended, and of those that still run."""
    own = root.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for process in tree(root)[1:]:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


class Peak(threading.Thread):
    """Looks at the memory of a process and its children until it is told to stop; `bytes` is the most it saw."""

    def __init__(self, root: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.root, self.bytes, self._over = root, 0, threading.Event()

    def run(self) -> None:
        while not self._over.wait(INTERVAL):
            self.bytes = max(self.bytes, resident(self.root))

    def stop(self) -> int:
        self._over.set()
        self.join()
        self.bytes = max(self.bytes, resident(self.root))
        return self.bytes


def run_notebook(notebook: nbformat.NotebookNode, folder: Path) -> dict[str, Any]:
    """Run every cell in a fresh kernel that starts in `folder`; what it cost. CellExecutionError where a cell raises."""
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3", resources=resources)
    began, load = time.perf_counter(), os.getloadavg()[0]
    with client.setup_kernel():
        kernel = psutil.Process(client.km.provisioner.pid)
        peak = Peak(kernel)
        peak.start()
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        seconds, cpu = time.perf_counter() - began, cpu_seconds(kernel)
        most = peak.stop()
    return {
        "peak_bytes": most,
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(seconds, 1),
        "load_average": round(load, 1),
    }


def lab_bytes() -> int:
    """Bytes in memory of a JupyterLab server that has answered once and has no page open."""
    with tempfile.TemporaryDirectory() as folder:
        port = "8997"
        options = ["--no-browser", f"--port={port}", "--port-retries=0", "--IdentityProvider.token=", "--allow-root"]
        lab = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], cwd=folder, stderr=subprocess.DEVNULL, text=True
        )
        try:
            end = time.monotonic() + LAB_SECONDS
            while True:
                try:
                    urllib.request.urlopen(f"http://localhost:{port}/lab", timeout=5).read()
                    return resident(psutil.Process(lab.pid))
                except OSError:
                    if lab.poll() is not None or time.monotonic() > end:
                        raise
                    time.sleep(0.5)
        finally:
            lab.terminate()
            lab.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="NN", help="lesson numbers; none means all")
    parser.add_argument("--output", type=Path, default=RESULTS / "lesson_costs.json")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.pop("COURSE_STRICT", None)
    report: dict[str, Any] = {
        "threads": int(os.environ["OMP_NUM_THREADS"]),
        "load_average_before": round(os.getloadavg()[0], 1),
        "jupyterlab_bytes": lab_bytes(),
        "lessons": {},
    }
    for path in sorted((ROOT / "lessons").glob("*.ipynb")):
        if args.lessons and path.name[:2] not in args.lessons:
            continue
        row = run_notebook(nbformat.read(path, as_version=4), path.parent)
        report["lessons"][path.stem] = row
        print(
            f"{path.stem:24}{row['peak_bytes'] / 2**20:8.0f} MiB{row['cpu_seconds']:8.1f} CPU s"
            f"{row['wall_seconds']:8.1f} s   load {row['load_average']}",
            flush=True,
        )
    store(args.output, report)


if __name__ == "__main__":
    main()
