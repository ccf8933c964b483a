"""A JupyterLab server for one test run, and a notebook opened in it."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tools.lessons.execute import kernel_environment

KERNEL_READY = "Python 3 (ipykernel) | Idle"
ERROR = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']"  # tracebacks too are shown as this
CHROMIUM_ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SETTINGS = {
    # The *string* "false" means never; the default asks with a pop-up that covers the page.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Every cell is in the page, also those out of sight.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


class Lab:
    """JupyterLab over `root`, with settings, workspaces and configuration of its own. Use as a context manager."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        self.token = secrets.token_hex(16)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def __enter__(self) -> Lab:
        for name, settings in SETTINGS.items():
            path = self.home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(settings), encoding="utf-8")
        env = kernel_environment(strict=False)
        env |= {"JUPYTER_CONFIG_DIR": str(self.home / "config"), "JUPYTERLAB_SETTINGS_DIR": str(self.home / "settings")}
        env |= {
            "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "workspaces"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
        }
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.port={self.port}"]
        command += [
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={self.token}",
            f"--ServerApp.root_dir={self.root}",
        ]
        self.log = (self.home / "server.log").open("w+")
        self.process = subprocess.Popen(command, env=env, cwd=self.root, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.terminate()  # the server shuts its kernels down
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def _wait(self, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api?token={self.token}", timeout=2).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.2)
        raise RuntimeError("JupyterLab did not start:\n" + (self.home / "server.log").read_text()[-3000:])

    def open(self, page: Any, path: str) -> None:
        """Open a notebook and wait until its kernel can run it: the notebook alone says idle too early."""
        page.goto(f"http://127.0.0.1:{self.port}/lab/tree/{path}?token={self.token}&reset")
        page.locator("#jp-main-statusbar", has_text=KERNEL_READY).wait_for(timeout=90_000)

    def run_all(self, page: Any) -> None:
        """Run > Run All Cells, and wait until the last code cell has run. AssertionError with the text of a cell that raised."""
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        # A cell that waits shows [*], one that has not run shows [ ].
        page.wait_for_function(
            """error => { const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(p => p.textContent);
                          return document.querySelector(error) || (prompts.length && prompts.every(text => /\\[\\d+\\]/.test(text))); }""",
            arg=ERROR,
            timeout=180_000,
        )
        errors = page.locator(ERROR).all_inner_texts()
        if errors:
            raise AssertionError("\n".join(errors))
        page.locator("#jp-main-statusbar", has_text=KERNEL_READY).wait_for(timeout=30_000)
