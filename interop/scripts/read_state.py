"""Read files that were written elsewhere and print their sums: read_state.py API FOLDER."""

import json
import sys

import numpy as np

import paddle

folder = sys.argv[2]
found = {}


def note(kind, name, value):
    """Keep what identifies an array."""
    value = np.array(value)
    found[kind + ":" + name] = [
        list(value.shape),
        str(value.dtype),
        float(value.astype("f8").sum()),
    ]


if sys.argv[1] == "fluid":
    from paddle import fluid as module

    cpu = module.CPUPlace()
else:
    paddle.enable_static()
    module, cpu = paddle.static, paddle.CPUPlace()

load_program_state = module.load_program_state if hasattr(module, "load_program_state") else None
load_program_state = load_program_state or module.io.load_program_state
for name, value in load_program_state(folder + "/saved").items():
    note("saved", name, value)
for name, value in load_program_state(folder + "/vars").items():
    note("vars", name, value)

# The saved program and its state go through the engine's own load, and out of its scope again.
with open(folder + "/saved.pdmodel", "rb") as stream:
    program = module.Program.parse_from_string(stream.read())
executor = module.Executor(cpu)
variables = [v for v in program.list_vars() if v.persistable]
load_vars = module.load_vars if hasattr(module, "load_vars") else module.io.load_vars
load_vars(executor, folder, program, vars=variables, filename="combined")
for var in variables:
    tensor = module.global_scope().find_var(var.name).get_tensor()
    note("combined", var.name, tensor)
    if tensor.lod():
        found["lod:" + var.name] = tensor.lod()
if sys.argv[1] != "fluid":
    for name, value in paddle.load(folder + "/object.pd", return_numpy=True).items():
        note("object", name, value)
print("FOUND " + json.dumps(found))
