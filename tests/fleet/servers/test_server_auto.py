"""`auto` in a job with servers: trials push nothing, and synchronous workers choose the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jobs import run_cases
from technique_cases import (
    EACH,
    FRESH,
    OPS,
    STEPS,
    Case,
    Net,
    a_program_alone,
    alone,
    batch,
    joined,
    loss_of,
    same,
    served,
    train_a_program,
    values,
)

pytestmark = pytest.mark.usefixtures("fresh_fleet", "fresh_graph")


def search_and_train(case: Case, session: Any, worker: int) -> Any:
    """Train a module by what `auto` finds; evaluate it too early first."""
    model = Net()
    wrapped, made = joined(session, model)
    x, ids, _ = batch(0, worker)
    with pytest.raises(RuntimeError, match="train a step before the model is evaluated"):
        wrapped.eval()(x, ids)
    wrapped.train()
    for step in range(STEPS):
        made.zero_grad()
        loss_of(wrapped, step, worker).backward()
        made.step()
    return values(model), session._final_strategy().auto, session._get_applied_meta_list()


@pytest.mark.slow  # starts servers
def test_auto_in_a_job_with_servers_leaves_no_trace_but_its_choice(tmp_path):
    def searching(file: str, **settings: Any) -> dict[str, Any]:
        return {
            "auto": True,
            "auto_configs": {"file": str(tmp_path / file), "steps": 1},
            **settings,
        }

    in_single = {"amp_configs": {"custom_black_list": OPS}}  # amp would round a program
    recompute = {"recompute_configs": {"checkpoints": ["hidden"]}}
    asynchronous = {"a_sync": True, "a_sync_configs": FRESH}
    cases = [
        Case(search_and_train, searching("module", **recompute)),
        Case(train_a_program, searching("program", **in_single)),
        Case(search_and_train, searching("alone", **asynchronous), workers=1),
        Case(train_a_program, searching("4", **in_single, **asynchronous), workers=1),
    ]
    results = run_cases(served, cases)
    for found in results:
        trained, is_on, applied = found[0]
        same(trained, alone(EACH), 1e-12)  # amp leaves double precision as it is
        assert not is_on
        assert applied == results[0][0][2]
        assert "parameter_server" in applied
        same(found[1][0], a_program_alone(), 1e-7)
        assert "send" in found[1][1]
    same(results[0][2][0], alone([[(step, 0)] for step in range(STEPS)]), 1e-12)
    same(results[0][3][0], a_program_alone(workers=1), 1e-7)
    for case in (cases[0], cases[1]):
        kept = json.loads(Path(case.settings["auto_configs"]["file"]).read_text())
        tried = {line["name"]: line["seconds"] for line in kept["tried"]}
        assert kept["job"]["servers"] == 2
        assert tried["as it is"] > 0
        assert tried["amp bfloat16"] > 0
        assert case is not cases[0] or tried["recompute"] > 0
        assert not any("fp16_allreduce" in name for name in tried)  # there is no all-reduce
