"""Print slots and kinds of attributes of all ops of a real Paddle: op_protos.py API FILE."""

import json
import sys

if sys.argv[1] == "fluid":
    from paddle.fluid.framework import OpProtoHolder
else:
    from paddle.base.framework import OpProtoHolder

ops = {
    name: {
        "inputs": [slot.name for slot in proto.inputs],
        "outputs": [slot.name for slot in proto.outputs],
        "intermediate": [slot.name for slot in proto.outputs if slot.intermediate],
        "attrs": {attr.name: int(attr.type) for attr in proto.attrs},
    }
    for name, proto in OpProtoHolder.instance().op_proto_map.items()
}
with open(sys.argv[2], "w") as stream:
    json.dump(ops, stream)
