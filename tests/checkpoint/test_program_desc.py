import subprocess
import sys
from pathlib import Path

import pytest

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.program_desc import AttrType, VarKind, message, parse_program

GOLDEN = Path(__file__).parent / "golden"
MODELS = sorted(
    str(p.relative_to(GOLDEN))
    for p in GOLDEN.glob("*/*")
    if p.name == "__model__" or p.suffix == ".pdmodel"
)


@pytest.mark.parametrize("name", MODELS)
def test_files_of_paddle_round_trip_byte_for_byte(name):
    data = (GOLDEN / name).read_bytes()
    program = parse_program(data, source=name)
    assert program.SerializeToString() == data
    assert "mul" in {op.type for op in program.blocks[0].ops}


def unknown_fields(item):
    from google.protobuf.unknown_fields import UnknownFieldSet

    assert not len(UnknownFieldSet(item)), item
    for field, value in item.ListFields():
        if field.message_type:
            for child in value if hasattr(value, "add") else [value]:
                unknown_fields(child)


@pytest.mark.parametrize("name", MODELS)
def test_every_field_of_these_files_is_known(name):
    unknown_fields(parse_program((GOLDEN / name).read_bytes(), source=name))


def test_defaults_and_required_fields():
    block = message("BlockDesc")()
    assert block.forward_block_idx == -1
    assert not block.IsInitialized()
    variable = message("VarDesc")(name="x")
    variable.type.type = VarKind.LOD_TENSOR
    variable.type.lod_tensor.tensor.data_type = VarKind.FP32
    assert variable.IsInitialized()
    assert variable.type.lod_tensor.lod_level == 0
    attr = message("OpDesc.Attr")(name="a", type=AttrType.LONGS, longs=[1, -1])
    assert attr.SerializeToString() == b"\n\x01a\x10\x0bx\x01x" + b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize("name", MODELS)
def test_truncated_programs_are_refused(name):
    data = (GOLDEN / name).read_bytes()
    end_of_blocks = 1 + 2 + int.from_bytes(data[1:2], "little")  # only to vary the cuts a little
    for length in [0, 1, 10, end_of_blocks, len(data) // 2]:
        with pytest.raises(FormatError, match="model.bin"):
            parse_program(data[:length], source="model.bin")


@pytest.mark.parametrize("data", [b"not a program at all", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_foreign_files_are_refused(data):
    with pytest.raises(FormatError, match="model.bin"):
        parse_program(data, source="model.bin")


def test_blocks_must_be_in_order():
    program = message("ProgramDesc")()
    program.blocks.add(idx=1, parent_idx=-1)
    with pytest.raises(FormatError, match="number 0 has the index 1"):
        parse_program(program.SerializeToString(), source="f")
    program.blocks[0].idx = 0
    program.blocks.add(idx=1, parent_idx=1)
    with pytest.raises(FormatError, match="names block 1 as its parent"):
        parse_program(program.SerializeToString(), source="f")


@pytest.mark.slow
def test_messages_do_not_enter_the_default_pool_and_import_is_lazy():
    code = (
        "import sys\n"
        "import fleetx.checkpoint.program_desc as p\n"
        "assert 'google.protobuf' not in sys.modules\n"
        "p.message('ProgramDesc')\n"
        "from google.protobuf import descriptor_pool\n"
        "try:\n"
        "    descriptor_pool.Default().FindMessageTypeByName(p.PACKAGE + '.ProgramDesc')\n"
        "except KeyError:\n"
        "    print('private')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "private\n", done.stderr
