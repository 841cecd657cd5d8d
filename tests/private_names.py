"""Find private names of other packages: `x._name` where no module of the package defines `_name`.

A package is a folder of `src/fleetx`, or a module beside the folders. `self`, `cls` and `super()`
may use what they inherit; imports count, and strings in `getattr`, `setattr`, `hasattr`, `delattr`.
The check goes by names, not by types: a private name that the package defines too is not seen.

`make lint` runs it. What is left to do is listed in `private_names.txt`, by file and name. The list
may only shrink: an entry that is no longer needed is an error.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "fleetx"
ALLOWED = Path(__file__).with_suffix(".txt")

# Its purpose is to use PyTorch's private names, and tests/test_torch_names.py checks it.
EXEMPT = "torch_private.py"
# Names of Python that are documented in spite of the underscore.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
OWN = {"self", "cls", "super"}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
BY_TEXT = {"getattr", "setattr", "hasattr", "delattr"}


def is_private(name: str) -> bool:
    """Tell whether a name has one underscore in front, and is not one of Python's own."""
    return name.startswith("_") and not name.startswith("__") and name not in {"_", *DOCUMENTED}


def package_of(file: str) -> str:
    """Return the package of a file of the sources: `ps` for `ps/wire/security.py`."""
    return file.split("/")[0].removesuffix(".py")


def is_own(node: ast.expr) -> bool:
    """Tell whether an expression is the object or the class itself."""
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
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and is_own(node.value)
        ):
            yield node.attr


def used(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the private names that may be another package's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not is_own(node.value):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            if f"{node.module}.".startswith(f"fleetx.{package}."):
                continue
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.Call):
            match node.func, node.args:
                case ast.Name(id), [of, ast.Constant(str(name)), *_] if id in BY_TEXT:
                    if not is_own(of):
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
    """Print what is not allowed and what is allowed in vain; return how many of them there are."""
    files = {str(p.relative_to(SOURCES)): p.read_text() for p in sorted(SOURCES.rglob("*.py"))}
    allowed = ALLOWED.read_text().splitlines()
    found = foreign(files)
    wrong = [
        f"src/fleetx/{file}:{line}: {name} is a private name of another package"
        for file, line, name in found
        if f"{file} {name}" not in allowed
    ]
    needed = {f"{file} {name}" for file, _, name in found}
    wrong += [
        f"{ALLOWED.name}: '{entry}' is no longer needed" for entry in allowed if entry not in needed
    ]
    if allowed != sorted(allowed):
        wrong.append(f"{ALLOWED.name}: sort the lines")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
