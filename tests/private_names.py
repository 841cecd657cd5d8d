"""Find private names of other packages: `x._name` where no module of the package defines `_name`.

A package is a folder of `src/fleetx`, a module beside the folders, or `compat/paddle`. `self`,
`cls` and `super()` may use what they inherit; imports count, and strings in `getattr`, `setattr`,
`hasattr`, `delattr`. It goes by names, not by types: what the package defines too is not seen.

`make lint` runs it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = "src/fleetx/", "compat/"

# Its purpose is to use PyTorch's private names, and tests/test_torch_names.py checks it.
EXEMPT = "src/fleetx/torch_private.py"
# Names of Python that are documented in spite of the underscore.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
OWN = {"self", "cls", "super"}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
BY_TEXT = {"getattr", "setattr", "hasattr", "delattr"}


def is_private(name: str) -> bool:
    """Return whether a name has one underscore in front, and is not one of Python's own."""
    return name.startswith("_") and not name.startswith("__") and name not in {"_", *DOCUMENTED}


def package_of(file: str) -> str:
    """Return the package of a file: `ps` for `src/fleetx/ps/wire/security.py`."""
    for folder in SOURCES:
        file = file.removeprefix(folder)
    return file.split("/")[0].removesuffix(".py")


def is_own(node: ast.expr) -> bool:
    """Return whether an expression is the object or the class itself."""
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in OWN


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file defines: functions, classes, attributes and global variables."""
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            yield node.name
        if isinstance(node, ast.Module | ast.ClassDef):
            plain = [each for each in node.body if not isinstance(each, DEFINITIONS)]
            for target in ast.walk(ast.Module(plain, [])):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    yield target.id
        match node:
            case ast.Attribute(of, name, ast.Store()) if is_own(of):
                yield name


def used(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the private names that may be another package's."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(of, name) if not is_own(of):
                yield node.lineno, name
            case ast.ImportFrom(module, names):
                if not f"{module}.".startswith((f"fleetx.{package}.", f"{package}.")):
                    yield from ((node.lineno, each.name) for each in names)
            case ast.Call(ast.Name(function), [of, ast.Constant(str(name)), *_]):
                if function in BY_TEXT and not is_own(of):
                    yield node.lineno, name


def foreign(files: Mapping[str, str]) -> list[tuple[str, int, str]]:
    """Return file, line and name of every private name of another package, given texts of files."""
    trees = {file: ast.parse(text) for file, text in files.items()}
    own: defaultdict[str, set[str]] = defaultdict(set)
    for file, tree in trees.items():
        own[package_of(file)].update(defined(tree))
    return sorted(
        (file, line, name)
        for file, tree in trees.items()
        if file != EXEMPT
        for line, name in used(tree, package_of(file))
        if is_private(name) and name not in own[package_of(file)]
    )


def main() -> int:
    """Print the private names of other packages; return how many there are."""
    files = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    found = foreign(files)
    for file, line, name in found:
        print(f"{file}:{line}: {name} is a private name of another package")
    return len(found)


if __name__ == "__main__":
    raise SystemExit(bool(main()))
