"""The protobuf messages that programs are stored in."""

from fleetx.checkpoint.program_desc import AttrType as _AttrType
from fleetx.checkpoint.program_desc import message as _message

Version = _message("Version")
OpDesc = _message("OpDesc")
OpProto = _message("OpProto")
VarType = _message("VarType")
VarDesc = _message("VarDesc")
BlockDesc = _message("BlockDesc")
CompatibleInfo = _message("CompatibleInfo")
OpCompatibleMap = _message("OpCompatibleMap")
ProgramDesc = _message("ProgramDesc")

INT = _AttrType.INT
FLOAT = _AttrType.FLOAT
STRING = _AttrType.STRING
INTS = _AttrType.INTS
FLOATS = _AttrType.FLOATS
STRINGS = _AttrType.STRINGS
BOOLEAN = _AttrType.BOOLEAN
BOOLEANS = _AttrType.BOOLEANS
BLOCK = _AttrType.BLOCK
LONG = _AttrType.LONG
BLOCKS = _AttrType.BLOCKS
LONGS = _AttrType.LONGS
