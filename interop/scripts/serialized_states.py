"""Write or read every form of a training state: serialized_states.py API write|read FOLDER.

Both print what they computed: `write` trains two steps, saves and trains two more; `read` loads
what was written into a program of its own and trains these two steps.
"""

import json
import sys
import warnings

import numpy as np

import paddle
from paddle import static

paddle.enable_static()
task, folder = sys.argv[2:4]
prefix = folder + "/state"
found = {}
data = np.random.RandomState(5).uniform(-1, 1, (6, 4)).astype("float32")
labels = data.sum(1, keepdims=True)


def build():
    """Build a small network with names of its own, and train it with Adam."""
    x = static.data("x", [None, 4], "float32")
    y = static.data("y", [None, 1], "float32")
    with paddle.utils.unique_name.guard():
        w = paddle.ParamAttr(name="w1", initializer=paddle.nn.initializer.Constant(0.1))
        v = paddle.ParamAttr(name="w2", initializer=paddle.nn.initializer.Constant(0.2))
        hidden = static.nn.fc(x, 3, weight_attr=w, bias_attr="b1", activation="tanh")
        out = static.nn.fc(hidden, 1, weight_attr=v, bias_attr=False)
        loss = paddle.mean(paddle.nn.functional.square_error_cost(out, y))
        paddle.optimizer.Adam(0.05).minimize(loss)
    return x, out, loss


def train(executor, program, loss):
    """Return the losses of two steps."""
    feed = {"x": data, "y": labels}
    runs = [executor.run(program, feed=feed, fetch_list=[loss])[0] for _ in range(2)]
    return [float(np.asarray(value).reshape(-1)[0]) for value in runs]


def kind_of(function, *args):
    """Return the class of what a call raises."""
    try:
        function(*args)
    except Exception as error:
        bases = (Exception, TypeError, ValueError, AssertionError)
        return sorted(base.__name__ for base in bases if isinstance(error, base))
    return []


def shape_of(program):
    """Return what tells two programs apart: op types, and persistable variables."""
    names = [v.name for v in program.list_vars() if v.persistable]
    return [op.type for op in program.global_block().ops], sorted(names)


main, startup = static.Program(), static.Program()
with static.program_guard(main, startup):
    x, out, loss = build()
executor = static.Executor(paddle.CPUPlace())
executor.run(startup)

if task == "write":
    found["before"] = train(executor, main, loss)
    static.save(main, prefix)
    state = static.load_program_state(prefix)
    found["state"] = {n: [list(a.shape), float(a.astype("f8").sum())] for n, a in state.items()}
    normal = static.normalize_program(main, [x], [out])
    found["normalized"] = shape_of(normal)
    program = static.serialize_program([x], [out], program=main)
    values = static.serialize_persistables([x], [out], executor, program=main)
    same = static.io._serialize_persistables(normal, executor)
    found["same"] = [values == same, isinstance(program, bytes)]
    static.save_to_file(prefix + ".program", program)
    static.save_to_file(prefix + ".values", values)
    static.save_to_file(prefix + ".normal", static.io._serialize_program(normal))
    found["outputs"] = executor.run(
        main.clone(for_test=True), feed={"x": data, "y": labels}, fetch_list=[out]
    )[0].tolist()
    found["after"] = train(executor, main, loss)
    wrong = [
        (static.serialize_program, [3], [out]),
        (static.serialize_persistables, [x], 3, executor),
        (static.normalize_program, 3, [x], [out]),
        (static.normalize_program, main, [3], [out]),
        (static.normalize_program, main, [x], [3]),
        (static.save_to_file, prefix + ".no", 3),
        (static.deserialize_persistables, 3, values, executor),
        (static.deserialize_program, b"no program"),
        (static.set_program_state, main, {"w1": np.zeros((2, 2), "float32")}),
        (static.load, main, folder + "/missing", executor),
    ]
    found["errors"] = [kind_of(*call) for call in wrong]
else:
    for form in ("load", "set"):
        executor.run(startup)
        if form == "load":
            static.load(main, prefix, executor)
        else:
            state = static.load_program_state(prefix)
            del state["learning_rate_0"]  # [1] in 2.0; 2.6 has [] and refuses [1]
            static.set_program_state(main, state)
        found["after " + form] = train(executor, main, loss)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        static.set_program_state(main, {"other": np.zeros(1, "float32")})
    found["warnings"] = len([w for w in caught if "other" in str(w.message)])
    for form in ("program", "normal"):
        program = static.deserialize_program(static.load_from_file(prefix + "." + form))
        with static.scope_guard(static.Scope()):
            static.deserialize_persistables(
                program, static.load_from_file(prefix + ".values"), executor
            )
            targets = [op.input("X")[0] for op in program.global_block().ops if op.type == "fetch"]
            result = executor.run(program, feed={"x": data}, fetch_list=targets)[0]
        found["outputs of " + form] = result.tolist()
print("FOUND " + json.dumps(found))
