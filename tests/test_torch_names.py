"""Every name of PyTorch in the sources exists in the PyTorch that is installed.

Branches for devices that no test machine has, and versions of PyTorch that lack a name, show here.
Private names are used by one module only, `fleetx/torch_private.py`.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import fleetx.ps.client.table_lookup  # noqa: F401 - registers torch.ops.fleetx

ROOT = Path(__file__).resolve().parent.parent
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
# Names, or all names of a module, that are used only if the version is at least this one.
LATER = {
    "torch.distributed.fsdp.MixedPrecisionPolicy": (2, 7),
    "torch.distributed.fsdp.fully_shard": (2, 7),
    "torch.distributed.pipelining.ScheduleZBVZeroBubble": (2, 6),
    "torch.distributed.tensor": (2, 5),
    "torch.distributed.tensor.distribute_tensor": (2, 7),
}
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "compat").rglob("*.py")])


def modules_of_torch(tree: ast.AST) -> dict[str, ModuleType]:
    """Return what a file calls the modules of PyTorch: `dist` for torch.distributed."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "torch":
                    importlib.import_module(name.name)
                    path = name.name if name.asname else "torch"
                    found[name.asname or "torch"] = importlib.import_module(path)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            source = importlib.import_module(node.module)
            for name in node.names:
                value = getattr(source, name.name, None)
                since = LATER.get(f"{node.module}.{name.name}") or LATER.get(node.module, VERSION)
                if since > VERSION:
                    continue
                if value is None:
                    value = importlib.import_module(f"{node.module}.{name.name}")
                if isinstance(value, ModuleType):
                    found[name.asname or name.name] = value
    return found


def chains(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the parts of every `a.b.c` that begins with a name."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            parts, at = [node.attr], node.value
            while isinstance(at, ast.Attribute):
                parts.append(at.attr)
                at = at.value
            if isinstance(at, ast.Name):
                yield node.lineno, [at.id, *reversed(parts)]


def unknown_names(text: str) -> list[str]:
    """Return the names of PyTorch's modules that do not exist, with their lines."""
    tree = ast.parse(text)
    known, wrong = modules_of_torch(tree), []
    for line, (first, *rest) in chains(tree):
        value = known.get(first)
        for depth, part in enumerate(rest):
            if not isinstance(value, ModuleType):
                break  # what a class or an object has may be made at run time
            if LATER.get(f"{value.__name__}.{part}", VERSION) > VERSION:
                break
            if not hasattr(value, part):
                wrong.append(f"{line}: {'.'.join([first, *rest[: depth + 1]])}")
                break
            value = getattr(value, part)
    return wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("import torch\ntorch.cuda.synchronise()", ["2: torch.cuda.synchronise"]),
        ("import torch.distributed as dist\ndist.get_bakend()", ["2: dist.get_bakend"]),
        ("from torch import nn\nnn.Linear.weights", []),
        ("import torch\ndef f():\n    if torch.cuda.is_available(): torch.cud", ["3: torch.cud"]),
    ],
)
def test_a_typo_is_seen(text, wrong):
    assert unknown_names(text) == wrong


@pytest.mark.slow
def test_names_of_torch_exist():
    wrong = []
    for path in SOURCES:
        text = path.read_text()
        if "torch" in text:
            wrong += [f"{path.relative_to(ROOT)}:{item}" for item in unknown_names(text)]
    assert wrong == []


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def private_names(text: str) -> list[str]:
    """Return the private names of PyTorch that a file uses or imports, with their lines."""
    tree = ast.parse(text)
    known = modules_of_torch(tree)
    used = [
        (line, [known[first].__name__, *rest])
        for line, (first, *rest) in chains(tree)
        if first in known
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used += [(node.lineno, name.name.split(".")) for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            used += [(node.lineno, [*node.module.split("."), name.name]) for name in node.names]
    return [
        f"{line}: {'.'.join(parts)}"
        for line, parts in sorted(used)
        if parts[0].split(".")[0] == "torch" and any(map(is_private, parts))
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch\ntorch._foreach_add_(x, y)", ["2: torch._foreach_add_"]),
        ("from torch.utils import _pytree as tree", ["1: torch.utils._pytree"]),
        ("import torch._C as C", ["1: torch._C"]),
        ("from torch import nn\nnn.modules.x._y()", ["2: torch.nn.modules.x._y"]),
        ("import torch\ntorch.__version__, x._base, torch.add_", []),
    ],
)
def test_a_private_name_is_seen(text, found):
    assert private_names(text) == found


@pytest.mark.slow
def test_private_names_of_torch_are_in_one_module():
    own = ROOT / "src" / "fleetx" / "torch_private.py"
    found = []
    for path in SOURCES:
        text = path.read_text()
        if "torch" in text and path != own:
            found += [f"{path.relative_to(ROOT)}:{item}" for item in private_names(text)]
    assert found == [], "import them from fleetx.torch_private"
