"""Programs as the text form of Paddle's ProgramDesc protobuf, in both directions."""

from __future__ import annotations

from google.protobuf import text_format

from fleetx.checkpoint.program_desc import message
from fleetx.static.graph.program import Program
from fleetx.static.protobuf.serialize import program_from_bytes, program_to_desc

# Fields of variables that were added after Paddle 2.0, whose text parser rejects unknown fields.
_LATER = ("is_parameter", "stop_gradient")


def program_to_text(program: Program, with_details: bool = False) -> str:
    """Return a program as protobuf text, with the fields of Paddle 1.8 and 2.0.

    `with_details` adds the attributes of variables that a description lacks, in readable form.
    """
    desc = program_to_desc(program)
    for block in desc.blocks:
        for var in block.vars:
            for flag in _LATER:
                var.ClearField(flag)
    text = str(text_format.MessageToString(desc))
    if with_details:
        text += "\n".join(block.to_string(with_details=True) for block in program.blocks)
    return text


def program_from_text(text: str, *, source: str) -> Program:
    """Return the program in protobuf text; errors name ``source``."""
    try:
        desc = text_format.Parse(text, message("ProgramDesc")())
    except text_format.ParseError as error:
        raise ValueError(f"{source} is not the text of a program: {error}") from None
    return program_from_bytes(desc.SerializeToString(), source=source)
