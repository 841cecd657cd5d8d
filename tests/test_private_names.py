"""The check of `make lint` that no package uses another's private names."""

from __future__ import annotations

from pathlib import Path

import pytest

import private_names

PS = "class Table:\n    def _grow(self): ...\n\n_LIMIT = 3\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("table._grow()", [(1, "_grow")]),
        ("x = 1\ntable.rows._grow = x", [(2, "_grow")]),
        ("from fleetx.ps.table import Table, _LIMIT", [(1, "_LIMIT")]),
        ("getattr(table, '_grow', None)", [(1, "_grow")]),
        ("def f(table):\n    _grow = 1\n    return table._grow", [(3, "_grow")]),
        ("class Mine:\n    def f(self):\n        self._grow()\n        super()._grow()", []),
        ("class Mine:\n    _grow = 1\n\ndef f(mine):\n    return mine._grow", []),
        ("class Mine:\n    def __init__(self): self._grow = 1\n\ndef f(m): return m._grow", []),
        ("from fleetx.static import _names", []),
        ("row.__class__, row._fields, row._replace(x=1), os._exit(0), name_", []),
    ],
)
def test_what_is_seen(text: str, found: list[tuple[int, str]]) -> None:
    files = {"src/fleetx/ps/table.py": PS, "src/fleetx/static/program.py": text}
    assert private_names.foreign(files) == [
        ("src/fleetx/static/program.py", *item) for item in found
    ]


def test_compat_is_a_package_too() -> None:
    files = {
        "src/fleetx/ps/table.py": PS,
        "compat/paddle/a.py": "from paddle.b import _own\ntable._grow()",
    }
    assert private_names.foreign(files) == [("compat/paddle/a.py", 2, "_grow")]


def test_a_package_may_use_its_own() -> None:
    files = {
        "src/fleetx/ps/table.py": PS,
        "src/fleetx/ps/wire/client.py": "from fleetx.ps.table import _LIMIT\nt._grow()",
    }
    assert private_names.foreign(files) == []


def test_places_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "src/fleetx/ps/table.py": PS,
        "src/fleetx/static/program.py": "table._grow()",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(private_names, "ROOT", tmp_path)
    assert private_names.main() == 1
    line = "src/fleetx/static/program.py:1: _grow is a private name of another package\n"
    assert capsys.readouterr().out == line
