"""docs/paddle-compatibility.md is what its script writes."""

import importlib.util
import json
from pathlib import Path

from paddle._coverage import OPEN, sentence

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_compatibility.py"


def load_script():
    spec = importlib.util.spec_from_file_location("generate_compatibility", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_is_up_to_date():
    script = load_script()
    assert script.PATH.read_text(encoding="utf-8") == script.generate(), (
        "run: python docs/generate_compatibility.py"
    )


def test_every_listed_name_is_there():
    script = load_script()
    for module in script.public_modules():
        for name in script.public_names(module):
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_every_gap_has_a_sentence():
    script = load_script()
    _, gaps = script.count_names(json.loads(script.NAMES.read_text()))
    missing = [f"{module}.{name}" for module, names in gaps.items() for name in names]
    silent = [
        name
        for name in missing
        if not name.startswith("paddle.fluid.") and ": " not in sentence(name)
    ]
    assert silent == []


def test_every_open_row_is_a_gap():
    script = load_script()
    _, gaps = script.count_names(json.loads(script.NAMES.read_text()))
    missing = {f"{module}.{name}" for module, names in gaps.items() for name in names}
    for row in OPEN:
        assert any(f"{name}.".startswith(f"{row}.") for name in missing), row
