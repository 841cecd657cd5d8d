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
    files = {"ps/table.py": PS, "static/program.py": text}
    assert private_names.foreign(files) == [("static/program.py", *item) for item in found]


def test_a_package_may_use_its_own() -> None:
    files = {
        "ps/table.py": PS,
        "ps/wire/client.py": "from fleetx.ps.table import _LIMIT\nt._grow()",
    }
    assert private_names.foreign(files) == []


def test_the_list_may_only_shrink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, allowed = tmp_path / "fleetx", tmp_path / "allowed.txt"
    for name, text in {"ps/table.py": PS, "static/program.py": "table._grow()"}.items():
        (sources / name).parent.mkdir(parents=True)
        (sources / name).write_text(text)
    monkeypatch.setattr(private_names, "SOURCES", sources)
    monkeypatch.setattr(private_names, "ALLOWED", allowed)
    for lines, said in {
        "": "src/fleetx/static/program.py:1: _grow is a private name of another package\n",
        "static/program.py _grow\n": "",
        "static/program.py _grow\nstatic/program.py _shrink\n": (
            "allowed.txt: 'static/program.py _shrink' is no longer needed\n"
        ),
    }.items():
        allowed.write_text(lines)
        assert private_names.main() == bool(said)
        assert capsys.readouterr().out == said
