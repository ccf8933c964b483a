"""The command as a process of its own: how fast it starts, and how it ends when it is cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The command with a model that takes its time over each token, so that it can be caught in the middle.
SLOW = """
import sys, time
import mini_engine.models
from tests.generation.history_model import HistoryModel, loaded

forward = HistoryModel.forward
def slowly(*args, **options):
    time.sleep(0.05)
    return forward(*args, **options)

HistoryModel.forward = slowly
mini_engine.models.load_model = lambda *_, **__: loaded(context=4096)
mini_engine.models.available_models = lambda: ["smollm2-135m"]
from mini_engine.cli import main
sys.exit(main(sys.argv[1:]))
"""


def start(*arguments: str, code: str | None = None, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "mini_engine"] if code is None else [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    environment.pop("PYTHONUNBUFFERED", None)
    return subprocess.Popen([*command, *arguments], cwd=ROOT, env=environment, **options)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["generate", "--help"], ["doctor", "--help"], ["--version"]], ids=str
)
def test_help_loads_nothing_heavy(arguments):
    code = f"""
import sys
from mini_engine.cli import main
try:
    main({arguments})
except SystemExit as leave:
    assert leave.code == 0, leave.code
heavy = {{"numpy", "torch", "tqdm", "transformers", "tokenizers", "gguf", "matplotlib"}} & set(sys.modules)
assert not heavy, heavy
"""
    process = start(code=code)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()
    assert b"usage: mini-engine" in out or out.startswith(b"mini-engine ")


def test_importing_the_package_loads_nothing_heavy():
    process = start(code="import sys, mini_engine; sys.exit(bool({'numpy', 'torch'} & set(sys.modules)))")
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_invalid_utf_8_on_standard_input():
    process = start("generate", stdin=subprocess.PIPE)
    out, err = process.communicate(b"caf\xe9", timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert err == b"mini-engine: standard input is not UTF-8: byte 0xe9 at offset 3; convert it to UTF-8 first\n"


def test_text_streams_and_ctrl_c_ends_it_cleanly():
    process = start("generate", "abc", "--max-tokens", "4000", code=SLOW)
    assert process.stdout.read(1), "the first character comes long before the last"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert err == b"mini-engine: interrupted\n"


def test_a_reader_that_leaves_is_no_failure_to_talk_about():
    process = start("generate", "abc", "--max-tokens", "4000", code=SLOW)
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--json"]], ids=str)
def test_a_reader_that_never_came(arguments):
    code = f"""
import mini_engine.doctor
mini_engine.doctor.examine = list
from mini_engine.cli import main
import sys
sys.exit(main({arguments}))
"""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody:
        process = start(code=code, stdout=nobody)
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode in (0, 141)  # argparse itself forgives a failing write of its help


QUICK = SLOW.replace("time.sleep(0.05)", "pass").replace(
    "from mini_engine.cli", "import mini_engine.doctor; mini_engine.doctor.examine = list\nfrom mini_engine.cli"
)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "1</dev/null"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [("generate", 2), ("generate abc", 0), ("doctor", 0), ("", 2)],
)
def test_a_closed_stream_is_no_traceback(closed, arguments, status):
    """A stream that is closed counts as the null device; one that cannot be written to is a failure."""
    shell = f'exec "$0" -c "$1" {arguments} {closed}'
    command = ["/bin/sh", "-c", shell, sys.executable, QUICK]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, input=b"", capture_output=True, timeout=60)
    if "1<" in closed and status == 0:
        assert (run.returncode, run.stderr) == (1, b"mini-engine: [Errno 9] Bad file descriptor\n")
        return
    assert run.returncode == status, run.stderr
    assert b"Traceback" not in run.stderr
    assert b"Exception ignored" not in run.stderr
    assert bool(run.stdout) == (status == 0 and ">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize("target", ["2</dev/null", "2>/dev/full"])
@pytest.mark.parametrize(("arguments", "status"), [("generate abc", 0), ("generate --bad", 2)])
def test_messages_that_nobody_can_read_change_no_status(target, arguments, status):
    command = ["/bin/sh", "-c", f'exec "$0" -c "$1" {arguments} {target}', sys.executable, QUICK]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, input=b"", stdout=subprocess.PIPE, timeout=60)
    assert run.returncode == status
    assert bool(run.stdout) == (status == 0)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_message():
    with open("/dev/full", "w") as full:
        process = start("generate", "abc", "--json", code=QUICK, stdout=full)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == b"mini-engine: [Errno 28] No space left on device\n"


def test_a_terminal_without_unicode_gets_a_question_mark(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code = "import mini_engine.cli as cli; cli._parser = lambda: exit(print('caf\u00e9')); cli.main([])"
    out, err = start(code=code).communicate(timeout=60)
    assert (out, err) == (b"caf?\n", b"")
