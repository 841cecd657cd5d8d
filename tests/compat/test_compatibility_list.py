"""docs/paddle-compatibility.md is what its script writes."""

import importlib.util
from pathlib import Path

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
