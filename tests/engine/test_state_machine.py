"""The state machine, run long enough to take 20,000 rules and more steps; MINI_ENGINE_FUZZ_SECONDS keeps it going."""

from __future__ import annotations

import os
import time

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.machine import EngineMachine


def test_nothing_breaks_whatever_happens():
    seconds = float(os.environ.get("MINI_ENGINE_FUZZ_SECONDS", 0))
    until = time.monotonic() + seconds
    # With a fault planted on purpose (tools/mutants.py) a failure need not be made small.
    phases = [Phase.generate] if "MINI_ENGINE_MUTANT" in os.environ else list(Phase)
    common = {"phases": phases, "suppress_health_check": list(HealthCheck), "stateful_step_count": 50}
    EngineMachine.rules_run = EngineMachine.steps_run = 0
    run_state_machine_as_test(
        EngineMachine, settings=settings(max_examples=540, derandomize=True, database=None, **common)
    )
    print(f"{EngineMachine.rules_run} rules, {EngineMachine.steps_run} engine steps")
    assert EngineMachine.rules_run >= 20_000
    while time.monotonic() < until:
        run_state_machine_as_test(EngineMachine, settings=settings(max_examples=1000, **common))
        print(f"{EngineMachine.rules_run} rules, {EngineMachine.steps_run} engine steps", flush=True)
