"""Write docs/paddle-compatibility.md, the list of what the package `paddle` covers, from its code.

Run it as `python docs/generate_compatibility.py` after a change of names or arguments; a test
compares the file with what this script would write.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from enum import EnumType
from pathlib import Path
from types import ModuleType

import paddle
from paddle import version
from paddle._coverage import REASONS

PATH = Path(__file__).parent / "paddle-compatibility.md"

_HEAD = f"""# What the package `paddle` covers

This list is written by `docs/generate_compatibility.py` from the code of `compat/paddle`.

- The package has the names and arguments of Paddle's static-graph API, as programs of 1.8 to 2.4
  use them; all behaviour is in `fleetx`. `paddle.__version__` is `{version.full_version}`, the
  release that has both `paddle.fluid` and `paddle.static`.
- A name that is not listed here raises an `AttributeError` or `ImportError` that says so.
- Arguments that steer Paddle's own kernels (`use_cudnn`, `use_mkldnn`, ...) are accepted and have
  no effect. `FLAGS_...` are kept and have no effect.
- `paddle.fluid.layers` offers all names of its modules `nn`, `tensor`, `control_flow`, ..., where
  they are listed; `paddle` and `paddle.tensor` those of the modules of `paddle.tensor`.
"""

_OUTSIDE = """## Not covered

| name | why |
|---|---|
"""

# Packages whose names are those of their modules, listed there.
_COLLECTIONS = ("paddle.fluid.layers", "paddle.tensor")


def public_modules() -> list[ModuleType]:
    """Return `paddle` and all modules in it that are not private."""
    found = [paddle]
    for info in pkgutil.walk_packages(paddle.__path__, "paddle."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found.append(importlib.import_module(info.name))
    return found


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in vars(module) if not name.startswith("_") and name != "missing"]
    return sorted(set(names), key=lambda name: (name.lower(), name))


def signature_of(value: object) -> str:
    """Return the arguments of a function or class with their defaults, '' for anything else."""
    if not callable(value) or isinstance(value, EnumType):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    return re.sub(r"functools\.partial\(<function (\w+) at 0x[0-9a-f]+>, (\w+)\)", r"\1", text)


def _lines_of(module: ModuleType) -> list[str]:
    lines = []
    tensor_names = set(paddle.tensor.__all__) if module is paddle else set()
    for name in public_names(module):
        value = getattr(module, name)
        if isinstance(value, ModuleType) or name in tensor_names:
            continue
        lines.append(f"- `{name}{signature_of(value)}`")
    return lines


def generate() -> str:
    """Return the text of the list."""
    parts = [_HEAD, _OUTSIDE]
    parts[-1] += "".join(f"| `{name}` | {reason} |\n" for name, reason in sorted(REASONS.items()))
    for module in public_modules():
        lines = [] if module.__name__ in _COLLECTIONS else _lines_of(module)
        if lines:
            about = (module.__doc__ or "").strip().splitlines()[0]
            parts.append(f"## {module.__name__}\n\n{about}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(generate(), encoding="utf-8")
    print(f"wrote {PATH}")
