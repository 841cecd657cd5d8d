"""Run small programs whose ops need others around them: op_programs.py fluid FOUND.

Arrays, ranks of sequences, loops, branches, recurrence, readers and files: each function builds a
program and returns what to feed and what to fetch. FOUND.npz gets the fetched values, FOUND.json
the lengths of sequences, the op types of every program and the failures.
"""

import json
import sys
import tempfile

import numpy as np

from paddle import fluid
from paddle.fluid import layers
from paddle.fluid.layers import control_flow

PROGRAMS = {}
BEFORE = []  # what is called between the startup program and the run
CPU = fluid.CPUPlace()


def program(function):
    """Register a program under the name of its function."""
    PROGRAMS[function.__name__] = function
    return function


def values(*shape):
    """Return numbers that depend on the position alone."""
    return (np.arange(np.prod(shape), dtype="float32").reshape(shape) * 7 % 11 - 4) / 10


def data(name, *shape, **more):
    """Return an input that gets a gradient."""
    var = fluid.data(name, list(shape), **more)
    var.stop_gradient = False
    return var


def sequences(name, lengths, width, dtype="float32"):
    """Return an input of sequences and its value."""
    var = data(name, -1, width, dtype=dtype, lod_level=1)
    array = values(sum(lengths), width)
    if dtype == "int64":
        array = np.abs(array * 10).astype(dtype)
    return var, fluid.create_lod_tensor(array, [lengths], CPU)


def number(value):
    """Return an index."""
    return layers.fill_constant([1], "int64", value)


def with_gradients(outputs, inputs, feed):
    """Return the feed and the outputs with the gradients of the inputs for their weighted sum."""
    total = layers.sums([layers.reduce_sum(layers.square(out)) for out in outputs])
    return feed, list(outputs) + [g for g in fluid.gradients(total, inputs) if g is not None]


@program
def arrays():
    x = data("x", 3, 2)
    array = layers.array_write(x, number(0))
    layers.array_write(layers.scale(x, 2.0, 1.0), number(1), array)
    layers.array_write(layers.square(x), number(2), array)
    read = layers.array_read(array, number(1))
    joined, index = layers.tensor_array_to_tensor(array, axis=1)
    feed, fetch = with_gradients([read, joined], [x], {"x": values(3, 2)})
    return feed, fetch + [index, layers.array_length(array)]


@program
def stacked_arrays():
    x = data("x", 3, 2)
    array = layers.array_write(x, number(0))
    layers.array_write(layers.square(x), number(1), array)
    joined, index = layers.tensor_array_to_tensor(array, axis=0, use_stack=True)
    feed, fetch = with_gradients([joined], [x], {"x": values(3, 2)})
    return feed, fetch + [index]


@program
def ranks_of_sequences():
    x, given = sequences("x", [2, 4, 1], 3)
    first = data("first", 3, 2)
    table = control_flow.lod_rank_table(x)
    array = control_flow.lod_tensor_to_array(x, table)
    sorted_ = control_flow.reorder_lod_tensor_by_rank(first, table)
    less = control_flow.shrink_memory(sorted_, number(1), table)
    step = layers.array_read(array, number(1))
    back = control_flow.array_to_lod_tensor(array, table)
    feed = {"x": given, "first": values(3, 2)}
    feed, fetch = with_gradients([sorted_, less, step, back], [x, first], feed)
    return feed, fetch + [control_flow.max_sequence_len(table)]


@program
def loops():
    x = data("x", 3, 2)
    i, n = number(0), number(4)
    total = layers.assign(x)
    total.stop_gradient = False
    i, total = layers.while_loop(
        lambda i, total: layers.less_than(i, n),
        lambda i, total: (layers.increment(i, 1, in_place=False), layers.tanh(total) * x),
        [i, total],
    )
    return with_gradients([total], [x], {"x": values(3, 2)})


@program
def loops_over_arrays():
    x = data("x", 3, 2)
    i, n = number(0), number(3)
    i.stop_gradient = n.stop_gradient = True
    array = layers.array_write(x, i)
    condition = layers.less_than(i, n)
    loop = layers.While(condition)
    with loop.block():
        before = layers.array_read(array, i)
        layers.increment(i, 1)
        layers.array_write(layers.sigmoid(before * 2.0), i, array)
        layers.less_than(i, n, cond=condition)
    out = layers.array_read(array, i)
    return with_gradients([out], [x], {"x": values(3, 2)})


@program
def recurrence():
    x, first = data("x", 4, 3, 2), data("first", 3, 2)
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        memory = rnn.memory(init=first)
        hidden = layers.tanh(layers.elementwise_add(word, layers.scale(memory, 0.5)))
        rnn.update_memory(memory, hidden)
        rnn.step_output(hidden)
    feed = {"x": values(4, 3, 2), "first": values(3, 2)}
    return with_gradients([rnn()], [x, first], feed)


@program
def recurrence_over_sequences():
    x, given = sequences("x", [2, 4, 1], 3)
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(x)
        memory = rnn.memory(shape=[3], value=0.1)
        hidden = layers.tanh(layers.elementwise_add(word, layers.scale(memory, 0.5)))
        rnn.update_memory(memory, hidden)
        rnn.output(hidden)
    return with_gradients([rnn()], [x], {"x": given})


@program
def branches():
    x = data("x", 3, 2)
    large = layers.less_than(layers.fill_constant([1], "float32", 0.0), layers.reduce_sum(x))
    out = layers.cond(large, lambda: layers.square(x), lambda: layers.scale(x, 3.0))
    other = layers.cond(layers.logical_not(large), lambda: x * x * x, lambda: layers.tanh(x))
    return with_gradients([out, other], [x], {"x": values(3, 2)})


@program
def choices():
    x = data("x", 3, 2)
    cases = [lambda: layers.scale(x, 2.0), lambda: layers.square(x), lambda: layers.tanh(x)]
    out = layers.switch_case(layers.fill_constant([1], "int32", 1), dict(enumerate(cases)))
    rate = layers.create_global_var([1], 0.0, "float32", persistable=True)
    with layers.Switch() as switch:
        with switch.case(layers.less_than(number(3), number(2))):
            layers.assign(layers.fill_constant([1], "float32", 1.0), rate)
        with switch.default():
            layers.assign(layers.fill_constant([1], "float32", 2.0), rate)
    feed, fetch = with_gradients([out], [x], {"x": values(3, 2)})
    return feed, fetch + [rate]


@program
def rows_by_condition():
    x = data("x", 5, 1)
    zero = layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.0)
    choice = layers.IfElse(layers.less_than(x, zero))
    with choice.true_block():
        choice.output(layers.scale(choice.input(x), -2.0))
    with choice.false_block():
        choice.output(layers.square(choice.input(x)))
    return with_gradients([choice()[0]], [x], {"x": values(5, 1)})


@program
def python_functions():
    x = data("x", 3, 2)
    out = (
        fluid.default_main_program()
        .current_block()
        .create_var(name="out", dtype="float32", shape=[3, 2])
    )

    def backward(x, y, dy):
        return np.array(dy) * (1 - np.square(np.array(y)))

    layers.py_func(lambda x: np.tanh(x), x, out, backward)
    return with_gradients([out], [x], {"x": values(3, 2)})


@program
def printed_values():
    x = data("x", 3, 2)
    out = layers.Print(x, message="value", summarize=2)
    return with_gradients([out], [x], {"x": values(3, 2)})


@program
def decoded_beams():
    lods = [[[1, 1], [1, 1]], [[1, 1], [2, 2]], [[2, 2], [1, 1, 1, 1]]]
    ids, scores, feed = None, None, {}
    for step, lod in enumerate(lods):
        count = sum(lod[1])
        word = fluid.data("word%d" % step, [-1, 1], dtype="int64", lod_level=2)
        score = fluid.data("score%d" % step, [-1, 1], lod_level=2)
        numbers = (np.arange(count).reshape(-1, 1) * 3 + step) % 5
        feed[word.name] = fluid.create_lod_tensor(numbers.astype("int64"), lod, CPU)
        feed[score.name] = fluid.create_lod_tensor(values(count, 1), lod, CPU)
        if ids is None:
            ids, scores = layers.array_write(word, number(0)), layers.array_write(score, number(0))
        else:
            layers.array_write(word, number(step), ids)
            layers.array_write(score, number(step), scores)
    sentences = layers.beam_search_decode(ids, scores, beam_size=2, end_id=0)
    return feed, list(sentences)


@program
def files():
    folder = tempfile.mkdtemp()
    saved, exe = fluid.Program(), fluid.Executor(CPU)
    with fluid.program_guard(saved, fluid.Program()):
        weight = saved.global_block().create_var(
            name="w", shape=[3, 2], dtype="float32", persistable=True
        )
        fluid.global_scope().var("w").get_tensor().set(values(3, 2), CPU)
        fluid.io.save_vars(exe, folder, saved, vars=[weight])
    block = fluid.default_main_program().global_block()
    loaded = block.create_var(name="loaded", shape=[3, 2], dtype="float32")
    block.append_op(type="load", outputs={"Out": loaded}, attrs={"file_path": folder + "/w"})
    return {}, [layers.scale(loaded, 2.0)]


@program
def readers():
    reader = layers.py_reader(4, [[-1, 2]], ["float32"], use_double_buffer=True)
    reader.decorate_batch_generator(lambda: iter([[values(3, 2)], [values(5, 2)]]))
    BEFORE.append(reader.start)
    return {}, [layers.scale(layers.read_file(reader), 2.0)]


@program
def normalised_in_place():
    x = data("x", 3, 2, 4, 4)
    out = layers.inplace_abn(layers.scale(x, 2.0), act="leaky_relu", act_alpha=0.2)
    return with_gradients([layers.scale(out, 1.5)], [x], {"x": values(3, 2, 4, 4)})


@program
def rows_of_a_table():
    """The gradient of a sparse look-up, merged and read as Paddle's clipping does."""
    ids, given = sequences("ids", [2, 3], 1, "int64")
    attr = fluid.ParamAttr(name="table", initializer=fluid.initializer.Constant(0.5))
    rows = layers.embedding(ids, [11, 3], is_sparse=True, param_attr=attr)
    loss = layers.reduce_sum(layers.square(rows))
    (_, grad), *_ = fluid.backward.append_backward(loss)
    merged = layers.merge_selected_rows(grad)
    return {"ids": given}, [loss, layers.get_tensor_from_selected_rows(merged)]


def run(build):
    """Return values, lengths and op types of one program."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        with fluid.unique_name.guard():
            feed, fetch = build()
        blocks = [block for each in (main, startup) for block in each.blocks]
        types = sorted({op.type for block in blocks for op in block.ops})
        exe = fluid.Executor(CPU)
        exe.run(startup)
        while BEFORE:
            BEFORE.pop()()
        found = exe.run(main, feed=feed, fetch_list=fetch, return_numpy=False)
    results = []
    for var, value in zip(fetch, found):  # noqa: B905
        # nobody reads the lengths of a gradient, and FleetX gives it none
        lengths = [] if "@GRAD" in var.name else value.recursive_sequence_lengths()
        results.append((np.array(value), lengths))
    return results, types


def main():
    """Run all programs."""
    arrays, notes = {}, {}
    for name, build in PROGRAMS.items():
        try:
            found, types = run(build)
        except Exception as error:  # whatever an engine raises is the result
            notes[name] = {"failed": "%s: %s" % (type(error).__name__, error)}
            continue
        notes[name] = {"types": types, "lengths": [lengths for _, lengths in found]}
        for i, (value, _) in enumerate(found):
            arrays["%s.%d" % (name, i)] = value
    np.savez(sys.argv[2] + ".npz", **arrays)
    with open(sys.argv[2] + ".json", "w") as stream:
        json.dump(notes, stream)


main()
