"""Programs as binary and text files, and lists of their variables and ops."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess

from fleetx.checkpoint.atomic import atomic_write
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.inspection.drawing import draw_block_graphviz
from fleetx.static.io.variables import is_persistable
from fleetx.static.protobuf.serialize import program_from_bytes, program_to_bytes
from fleetx.static.protobuf.text import program_from_text, program_to_text

_logger = logging.getLogger(__name__)
_FEED_FETCH = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)


def load_program(model_filename: str, is_text: bool = False) -> Program:
    """Return the program in a file, binary or protobuf text."""
    with open(model_filename, "rb") as file:
        data = file.read()
    if is_text:
        return program_from_text(data.decode(), source=model_filename)
    return program_from_bytes(data, source=model_filename)


def save_program(
    program: Program, model_filename: str = "__model__", is_text: bool = False
) -> None:
    """Write a program to a file, binary or as protobuf text."""
    data = program_to_text(program).encode() if is_text else program_to_bytes(program)
    with atomic_write(model_filename) as file:
        file.write(data)


def program_type_trans(prog_dir: str, prog_fn: str, is_text: bool) -> str:
    """Convert a text file to binary, or vice versa; return the new file's name."""
    program = load_program(os.path.join(prog_dir, prog_fn), is_text)
    name = f"{prog_fn}.bin" if is_text else f"{prog_fn}.pbtxt"
    save_program(program, os.path.join(prog_dir, name), not is_text)
    return name


def check_pruned_program_vars(train_prog: Program, pruned_prog: Program) -> bool:
    """Return whether a pruned program's persistable variables match those of the training program.

    A variable that the training program lacks is logged as an error.
    """
    matches = True
    for var in pruned_prog.list_vars():
        if not is_persistable(var):
            continue
        other = train_prog.global_block().find_var(var.name)
        if other is None:
            _logger.error("variable %r is not in the training program.", var.name)
        elif (var.shape, var.dtype) != (other.shape, other.dtype):
            matches = False
            _logger.error(
                "variable %r is %s of %s in the pruned program, %s of %s in the training program.",
                *(var.name, var.dtype, var.shape, other.dtype, other.shape),
            )
    return matches


def parse_program(program: Program, output_dir: str) -> None:
    """Write lists of a program's persistable variables, all variables and ops into a folder."""
    lists: dict[str, list[dict[str, object]]] = {
        "persistable_vars": [_about(v) for v in program.list_vars() if is_persistable(v)],
        "all_vars": [_about(v) for v in program.list_vars()],
        "ops": [
            {
                "type": op.type,
                "input_arg_names": str(op.input_arg_names),
                "output_arg_names": str(op.output_arg_names),
            }
            for op in program.global_block().ops
        ],
    }
    for name, entries in lists.items():
        title = name.replace("_", " ")
        lines = [f"{title}:", *(str(entry) for entry in entries)]
        file_name = "vars_persistable.log" if name == "persistable_vars" else f"{name}.log"
        with atomic_write(os.path.join(output_dir, file_name)) as file:
            file.write(("\n".join(lines) + "\n").encode())


def graphviz(block: Block, output_dir: str = "", filename: str = "debug") -> None:
    """Draw a block: a `.dot` file, and a `.pdf` if Graphviz is installed."""
    path = os.path.join(output_dir, f"{filename}.dot")
    draw_block_graphviz(block, path=path)
    if shutil.which("dot"):
        pdf = os.path.join(output_dir, f"{filename}.pdf")
        subprocess.run(["dot", "-Tpdf", path, "-o", pdf], check=True)


def _about(var: Variable) -> dict[str, object]:
    if var.type in _FEED_FETCH:
        return {"name": var.name, "type": str(var.type)}
    return {
        "name": var.name,
        "shape": str(var.shape),
        "lod_level": int(var.lod_level or 0),
        "dtype": str(var.dtype),
        "type": str(var.type),
    }
