"""Helpers of Paddle 1.8 for one worker: messages, statistics, programs in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fleetx import fleet, static
from fleetx.paddle_rules.fleet_util import FleetUtil
from fleetx.static import layers
from fleetx.static.inspection import program_files


@pytest.mark.usefixtures("fresh_fleet")
def test_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    fleet.init(is_collective=True)
    util, scope = FleetUtil("transpiler"), static.Scope()
    assert util.get_global_auc(scope, "pos", "neg") is None
    scope.var("pos").get_tensor().set(np.array([[0, 1, 3]]))
    scope.var("neg").get_tensor().set(np.array([[3, 1, 0]]))
    util.print_global_auc(scope, "pos", "neg", "now:")
    assert "now: global auc = 0.96" in capsys.readouterr().out
    util.set_zero("pos", scope)
    assert scope.find_var("pos").get_tensor().numpy().tolist() == [[0, 0, 0]]
    with pytest.raises(ValueError, match="variable 'nothing' has no value"):
        util.set_zero("nothing", scope)
    with pytest.raises(ValueError, match="mode must be 'pslib' or 'transpiler', not 'other'"):
        FleetUtil("other")


def test_programs_in_files(tmp_path: Path) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        layers.scale(layers.data("x", [2]), 2.0)
    program_files.save_program(main, str(tmp_path / "model"))
    util = FleetUtil()
    assert util.program_type_trans(str(tmp_path), "model", False) == "model.pbtxt"
    util.parse_program_proto(str(tmp_path / "model.pbtxt"), True, str(tmp_path))
    util.draw_from_program_file(str(tmp_path / "model"), False, str(tmp_path), "drawing")
    assert (tmp_path / "ops.log").is_file()
    assert (tmp_path / "drawing.dot").is_file()
