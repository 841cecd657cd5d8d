"""Mixed precision casts the same ops at the same places as real Paddle, under the same names."""

import json
from pathlib import Path

from engines import Engine, ours


def ops_of(engine: Engine, path: Path) -> dict[str, list[list[object]]]:
    engine.run("amp_programs.py", path)
    found: dict[str, list[list[object]]] = json.loads(path.read_text())
    return found


def test_the_ops_of_small_networks(paddle: Engine, tmp_path: Path) -> None:
    real = ops_of(paddle, tmp_path / "real.json")
    here = ops_of(ours(paddle.api), tmp_path / "here.json")
    assert list(real) == list(here)
    for case in real:
        assert here[case] == real[case], case
        assert sum(op[0] == "cast" for op in real[case]) >= 5
