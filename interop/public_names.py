"""List the public modules and names of a Paddle, for the coverage table of the documentation.

    python public_names.py installed OUT.json      the Paddle that this Python imports
    python public_names.py source OUT.json FOLDER  the sources of one: FOLDER holds `paddle/`

Public is what `__all__` lists; without one, the functions and classes that a module defines itself.
Runs with Python 3.7 too.
"""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import sys
import warnings


def _is_public(name):
    parts = name.split(".")
    hidden = ("tests", "proto")
    return not any(p.startswith("_") or p in hidden or p.startswith("test_") for p in parts)


def _names_of(module):
    listed = getattr(module, "__all__", None)
    if listed:
        return sorted({str(name) for name in listed if not str(name).startswith("_")})
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", None) == module.__name__
    )


def installed():
    """Return the names by module of the Paddle that can be imported."""
    import paddle

    found = {"paddle": _names_of(paddle)}
    for info in pkgutil.walk_packages(paddle.__path__, "paddle.", onerror=lambda name: None):
        if _is_public(info.name):
            try:
                found[info.name] = _names_of(importlib.import_module(info.name))
            except Exception as error:  # a module for another system, or with a missing library
                print("cannot import", info.name, repr(error)[:100], file=sys.stderr)
    return found


def _aliases(text):
    """Return what a package of 2.0 marks as passed on: `from .x import y  #DEFINE_ALIAS`."""
    for line in text.splitlines():
        code, _, comment = line.partition("#")
        if "DEFINE_ALIAS" in comment and " import " in code and "," not in code:
            yield code.split(" import ")[1].split(" as ")[-1].strip()


def _names_in(text, is_package):
    listed, own = [], []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.append(node.name)
        target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
        if isinstance(target, ast.Name) and target.id == "__all__":
            listed += [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
    names = listed or (own + list(_aliases(text)) if is_package else own)
    return sorted({n for n in names if isinstance(n, str) and n.isidentifier() and n[0] != "_"})


def source(folder):
    """Return the names by module of the sources in a folder."""
    found = {}
    for where, _, files in os.walk(os.path.join(folder, "paddle")):
        for file in sorted(files):
            module = os.path.relpath(os.path.join(where, file), folder)[:-3].replace(os.sep, ".")
            module = module[: -len(".__init__")] if module.endswith(".__init__") else module
            if file.endswith(".py") and _is_public(module):
                with open(os.path.join(where, file), encoding="utf-8") as stream:
                    found[module] = _names_in(stream.read(), file == "__init__.py")
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    kind, out = sys.argv[1:3]
    names = installed() if kind == "installed" else source(sys.argv[3])
    names = {module: listed for module, listed in sorted(names.items()) if listed}
    with open(out, "w") as stream:
        json.dump(names, stream, indent=0)
    print(len(names), "modules,", sum(map(len, names.values())), "names")
