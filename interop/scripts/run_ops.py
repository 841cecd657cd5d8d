"""Run programs of one op each, forward and backward: run_ops.py API CASES.json DATA.npz FOUND.

A case names the op, the arrays of its input slots (with lengths of sequences where there are some),
its attributes and the number of variables per output slot. The loss of the backward pass is the
sum of all float outputs with weights that both engines compute alike. One line of JSON per case
goes to FOUND.json and its arrays to FOUND.<case>.npz at once, because a real Paddle may abort; the
caller starts the rest again with a list without that case.
"""

import json
import sys

import numpy as np

if sys.argv[1] == "fluid":
    from paddle import fluid as engine
    from paddle.fluid import CPUPlace, gradients
else:
    from paddle import CPUPlace, enable_static
    from paddle import static as engine
    from paddle.static import gradients

    enable_static()


def weights(shape):
    """Return weights between 0.5 and 1.5 that depend on the position alone."""
    count = int(np.prod(shape))
    return (0.5 + (np.arange(count) * 7 % 11) / 10.0).reshape(shape)


class Case:
    """One op in a program of its own."""

    def __init__(self, case, data, dtypes):
        self.case, self.feed = case, {}
        self.inputs, self.outputs = {}, {}
        self.main = engine.Program()
        with engine.program_guard(self.main, engine.Program()):
            block = self.main.global_block()
            for slot, entries in case["inputs"].items():
                self.inputs[slot] = [self._input(block, data, *entry) for entry in entries]
            for slot, count in case["outputs"].items():
                if slot in case["in_place"]:
                    self.outputs[slot] = self.inputs[case["in_place"][slot]]
                    continue
                self.outputs[slot] = [
                    self._output(block, "%s_out_%d" % (slot, i), dtypes) for i in range(count)
                ]
            block.append_op(
                type=case["type"],
                inputs=self.inputs,
                outputs=self.outputs,
                attrs=dict(case["attrs"]),
            )

    @staticmethod
    def _output(block, name, dtypes):
        return block.create_var(name=name, dtype=dtypes.get(name, "float32"))

    def _input(self, block, data, name, key, lengths):
        array = data[key]
        var = block.create_var(
            name=name,
            shape=array.shape,
            dtype=str(array.dtype),
            lod_level=len(lengths or ()),
            is_data=True,
            persistable=False,
            stop_gradient=array.dtype.kind != "f",
        )
        tensor = array
        if lengths:
            tensor = engine.create_lod_tensor(array, lengths, CPUPlace())
        self.feed[name] = tensor
        return var

    def run(self, fetch):
        """Return arrays and lengths of the fetched variables."""
        exe = engine.Executor(CPUPlace())
        with engine.scope_guard(engine.Scope()):
            values = exe.run(self.main, feed=self.feed, fetch_list=fetch, return_numpy=False)
        return [(np.array(v), v.recursive_sequence_lengths()) for v in values]

    def gradients(self, found):
        """Append the backward pass and return the gradients of the inputs by name."""
        sought = [
            v for slot in self.case["grads"] for v in self.inputs[slot] if not v.stop_gradient
        ]
        targets, given = [], []
        with engine.program_guard(self.main, engine.Program()):
            block = self.main.global_block()
            for slot in self.case["losses"]:
                for var in self.outputs[slot]:
                    value = found[var.name][0]
                    if value.dtype.kind != "f" or not value.size:
                        continue
                    weight = block.create_var(
                        name="weight_" + var.name,
                        shape=var.shape,
                        dtype=str(value.dtype),
                        is_data=True,
                        stop_gradient=True,
                    )
                    self.feed[weight.name] = weights(value.shape).astype(value.dtype)
                    lengths = found[var.name][1]
                    if lengths:
                        self.feed[weight.name] = engine.create_lod_tensor(
                            self.feed[weight.name], lengths, CPUPlace()
                        )
                    targets.append(var)
                    given.append(weight)
            grads = gradients(targets, sought, given)
        # zip has no `strict` in the Python of Paddle 1.8.5
        pairs = [(v.name, g) for v, g in zip(sought, grads) if g is not None]  # noqa: B905
        values = self.run([g for _, g in pairs])
        return dict(zip([name for name, _ in pairs], values))  # noqa: B905


def run_on_rows(case, data):
    """Run an op with rows of sparse gradients, which no program is fed with, on a scope."""
    from paddle.fluid.op import Operator

    scope, slots = engine.Scope(), {}
    for slot, entries in case["inputs"].items():
        slots[slot] = [name for name, _, _ in entries]
        for name, key, rows in entries:
            holder = scope.var(name)
            if isinstance(rows, dict):
                holder = holder.get_selected_rows()
                holder.set_rows(rows["rows"])
                holder.set_height(rows["height"])
            holder.get_tensor().set(data[key], CPUPlace())
    for slot, count in case["outputs"].items():
        slots[slot] = ["%s_out_%d" % (slot, i) for i in range(count)]
        if slot in case["in_place"]:
            slots[slot] = slots[case["in_place"][slot]]
        for name in slots[slot]:
            if slot in case["sparse"]:
                scope.var(name).get_selected_rows()
            else:
                scope.var(name).get_tensor()
    Operator(case["type"], **dict(slots, **case["attrs"])).run(scope, CPUPlace())
    found = {}
    for slot in case["compared"]:
        for name in slots[slot]:
            if slot in case["sparse"]:
                rows = scope.find_var(name).get_selected_rows()
                value = np.array(rows.get_tensor())
                whole = np.zeros((rows.height(),) + value.shape[1:], value.dtype)
                np.add.at(whole, list(rows.rows()), value)
                once = case["type"] == "merge_selected_rows"
                found[name] = (whole, [list(rows.rows())] if once else [])
            else:
                found[name] = (np.array(scope.find_var(name).get_tensor()), [])
    return found


def run_case(case, data):
    """Return arrays by name, and lengths and failures."""
    arrays, note = {}, {"lod": {}}
    try:
        if any(isinstance(e[2], dict) for entries in case["inputs"].values() for e in entries):
            found = run_on_rows(case, data)
            for name, (value, lod) in found.items():
                arrays["out " + name] = value
                note["lod"][name] = lod
            return arrays, note
        program = Case(case, data, {})
        names = [
            v for slot in case["compared"] for v in program.outputs.get(slot, ())
        ]  # fetching others may be impossible: XShape has no values
        found = dict(zip([v.name for v in names], program.run(names)))  # noqa: B905
    except Exception as error:  # whatever an engine raises is the result
        note["failed"] = "%s: %s" % (type(error).__name__, error)
        return arrays, note
    for name, (value, lod) in found.items():
        arrays["out " + name] = value
        note["lod"][name] = lod
    if case["grads"]:
        try:
            # Paddle does not infer the types of an op's outputs: they are known from the first run
            dtypes = {name: str(value.dtype) for name, (value, _) in found.items()}
            program = Case(case, data, dtypes)
            for name, (value, _) in program.gradients(found).items():
                arrays["grad " + name] = value
        except Exception as error:
            note["grad_failed"] = "%s: %s" % (type(error).__name__, error)
    return arrays, note


def main():
    """Run all cases of the list."""
    cases_path, data_path, found = sys.argv[2:5]
    with open(cases_path) as stream:
        cases = json.load(stream)
    data = np.load(data_path)
    for case in cases:
        with open(found + ".json", "a") as stream:
            stream.write(json.dumps({"case": case["name"], "started": True}) + "\n")
        arrays, note = run_case(case, data)
        np.savez("%s.%s.npz" % (found, case["name"]), **arrays)
        note["case"] = case["name"]
        with open(found + ".json", "a") as stream:
            stream.write(json.dumps(note) + "\n")


main()
