"""`__all__` that is computed from what a module defines or imports."""

import types

from fleetx import fleet
from fleetx.exports import export_defined, export_imported


def module_of(**names):
    module = types.ModuleType("made")
    exec("def work(): ...\nclass Tool: ...\ndef _hidden(): ...\n", vars(module))
    vars(module).update(names)
    return module


def test_what_a_module_defines():
    module = module_of(types=types, path=types.ModuleType("path"))
    export_defined(vars(module), "path")
    assert module.__all__ == ["Tool", "path", "work"]


def test_what_a_package_imports():
    module = module_of(types=types, export_imported=export_imported)
    export_imported(vars(module))
    assert module.__all__ == ["Tool", "work"]


def test_dir_of_fleet_shows_what_scripts_use():
    shown = set(dir(fleet))
    assert {"init", "distributed_model", "explain", "util", "main_program"} <= shown
    assert shown.isdisjoint({"session", "roles", "saving", "Any"})
    assert not [name for name in shown if name.startswith("_")]
