"""`mini-engine doctor`: is everything here that the course needs, and what to do about what is not."""

from __future__ import annotations

import json
from dataclasses import asdict

from mini_engine import __version__
from mini_engine.doctor import environment, files, machine
from mini_engine.doctor.finding import Check, Status

__all__ = ["Check", "Status", "examine", "report"]


def examine() -> list[Check]:
    """Run every check. A check that cannot even run is itself a fault."""
    checks: list[Check] = []
    for check in (
        environment.check_python,
        environment.check_install,
        environment.check_packages,
        environment.check_notebook,
        environment.check_widgets,
        environment.check_kernelspec,
        environment.check_nbgrader,
        machine.check_torch,
        machine.check_triton,
        machine.check_memory,
        machine.check_disk,
        machine.check_port,
        machine.check_fonts,
        files.check_tables,
        files.check_models,
    ):
        try:
            checks += check()
        except Exception as error:
            name = check.__name__.removeprefix("check_")
            checks.append(
                Check(
                    name,
                    "fault",
                    f"{type(error).__name__}: {error}",
                    "make the environment again: `make clean && make setup`",
                )
            )
    return checks


def report(checks: list[Check], *, as_json: bool = False) -> str:
    """The findings as lines of text, or as a JSON object."""
    faults = sum(check.status == "fault" for check in checks)
    warnings = sum(check.status == "warning" for check in checks)
    if as_json:
        return json.dumps({"ok": faults == 0, "version": __version__, "checks": [asdict(c) for c in checks]}, indent=2)
    lines = []
    for check in checks:
        lines.append(f"{check.status:>7}  {check.name}: {check.found}")
        if check.remedy:
            lines.append(f"{'':>7}  -> {check.remedy}")
    plural = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((faults, "fault"), (warnings, "warning"))]
    return "\n".join([*lines, "", " and ".join(plural)])
