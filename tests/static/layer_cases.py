"""Calls of math and tensor layers, written so that Paddle 1.8.5 (Python 3.7) runs them too.

`python layer_cases.py FILE` with Paddle's Python writes what Paddle appends to a program for each
call: op types, variable names, shapes. `data/layers_of_paddle_1_8_5.json` was made that way;
`test_math_layers.py` compares.
"""

import json
import sys

import numpy as np

# fmt: off
ACTIVATIONS = [
    "sigmoid", "logsigmoid", "exp", "tanh", "atan", "tanh_shrink", "sqrt", "rsqrt", "abs", "ceil",
    "floor", "cos", "acos", "asin", "sin", "round", "reciprocal", "square", "softplus",
    "softsign", "relu", "log", "sign", "soft_relu", "selu", "stanh", "hard_sigmoid", "hard_swish",
    "softshrink", "hard_shrink", "thresholded_relu", "gelu", "erf", "log1p", "elu", "relu6",
    "brelu", "leaky_relu", "pow", "mish", "zeros_like", "ones_like", "mean", "cumsum", "shape",
    "size", "tril", "triu", "rank",
]
# fmt: on
ELEMENTWISE = ["add", "sub", "mul", "div", "max", "min", "pow"]
COMPARE = ["equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"]
F, N, B = "float32", "int64", "bool"


def cases(L):
    """Return {name: (function of variables, [(shape, dtype) of each variable])}."""
    matrix = [([-1, 6], F)]
    pair = [([-1, 6], F), ([-1, 6], F)]
    found = {name: (getattr(L, name), matrix) for name in ACTIVATIONS}
    for kind in ELEMENTWISE:
        layer = getattr(L, "elementwise_" + kind)
        found["elementwise_" + kind] = (layer, pair)
        found[f"elementwise_{kind}_axis"] = (
            lambda x, y, layer=layer: layer(x, y, axis=1, act="relu", name="named"),
            [([-1, 3, 4], F), ([3], F)],
        )
    for kind in COMPARE:
        found[kind] = (getattr(L, kind), [([-1, 3], N), ([-1, 3], N)])
    for kind in ["sum", "mean", "max", "min", "prod"]:
        layer = getattr(L, "reduce_" + kind)
        cube = [([-1, 3, 4], F)]
        found["reduce_" + kind] = (layer, cube)
        found[f"reduce_{kind}_dim"] = (lambda x, layer=layer: layer(x, dim=[0, 2]), cube)
        found[f"reduce_{kind}_keep"] = (
            lambda x, layer=layer: layer(x, dim=-1, keep_dim=True),
            cube,
        )
    for kind in ["and", "or", "xor"]:
        found["logical_" + kind] = (getattr(L, "logical_" + kind), [([3, 4], B), ([3, 4], B)])
    found.update(_of_tensors(L))
    found.update(_of_creation(L))
    found.update(_of_operators(L))
    return found


def _of_tensors(L):
    cube = [([2, 3, 4], F)]
    matrix = [([4, 6], F)]
    image = [([-1, 4, 3, 3], F)]
    rows = [([4, 6], F), ([3], N)]

    def by_shape(x):
        return L.reshape(x, [L.slice(L.shape(x), [0], [0], [1]), 3, 2])

    def by_index(x):
        return L.slice(x, [0, 1], [L.fill_constant([1], "int32", 1), 0], [3, 2])

    return {
        "reduce_all": (lambda x: L.reduce_all(x, dim=1), [([3, 4], B)]),
        "reduce_any": (L.reduce_any, [([3, 4], B)]),
        "logical_not": (L.logical_not, [([3, 4], B)]),
        "scale": (lambda x: L.scale(x, 2.0, 1.0, act="tanh"), matrix),
        "sum": (lambda x, y: L.sum([x, y]), matrix * 2),
        "sums": (lambda x, y: L.sums([x, y, x]), matrix * 2),
        "logsumexp": (lambda x: L.logsumexp(x, 1), matrix),
        "addcmul": (lambda x, y: L.addcmul(x, y, y, 2.0), matrix * 2),
        "clip": (lambda x: L.clip(x, -0.5, 0.5), matrix),
        "clip_named": (lambda x: L.clip(x, -0.5, 0.5, name="limited"), matrix),
        "clip_by_norm": (lambda x: L.clip_by_norm(x, 1.0), matrix),
        "clamp": (lambda x: L.clamp(x, -0.5, 0.5), matrix),
        "isfinite": (L.isfinite, matrix),
        "has_nan": (L.has_nan, matrix),
        "allclose": (L.allclose, matrix * 2),
        "prelu_all": (lambda x: L.prelu(x, "all"), image),
        "prelu_channel": (lambda x: L.prelu(x, "channel"), image),
        "prelu_element": (lambda x: L.prelu(x, "element"), image),
        "maxout": (lambda x: L.maxout(x, 2), image),
        "mul": (lambda x, y: L.mul(x, y, 2, 1), [([-1, 3, 4], F), ([4, 5], F)]),
        "matmul": (
            lambda x, y: L.matmul(x, y, transpose_y=True, alpha=0.5),
            [([-1, 3, 4], F), ([-1, 5, 4], F)],
        ),
        "matmul_vector": (L.matmul, [([3, 4], F), ([4], F)]),
        "bmm": (L.bmm, [([2, 3, 4], F), ([2, 4, 5], F)]),
        "dot": (L.dot, [([2, 3], F), ([2, 3], F)]),
        "addmm": (L.addmm, [([3, 5], F), ([3, 4], F), ([4, 5], F)]),
        "kron": (L.kron, [([2, 3], F), ([2, 2], F)]),
        "cross": (L.cross, [([4, 3], F), ([4, 3], F)]),
        "dist": (L.dist, matrix * 2),
        "l2_normalize": (lambda x: L.l2_normalize(x, -1), cube),
        "trace": (L.trace, matrix),
        "t": (L.t, matrix),
        "cast": (lambda x: L.cast(x, "int64"), matrix),
        "assign": (L.assign, matrix),
        "concat": (lambda x, y: L.concat([x, y], 1), [([-1, 3], F), ([-1, 2], F)]),
        "stack": (lambda x, y: L.stack([x, y], 1), matrix * 2),
        "unstack": (lambda x: L.unstack(x, 1), cube),
        "split": (lambda x: L.split(x, 3, 1), matrix),
        "split_sections": (lambda x: L.split(x, [1, -1, 2]), matrix),
        "reshape": (lambda x: L.reshape(x, [0, -1, 2], act="relu"), matrix),
        "reshape_inplace": (lambda x: L.reshape(L.relu(x), [-1, 3], inplace=True), matrix),
        "reshape_by_variables": (by_shape, matrix),
        "reshape_by_shape": (lambda x, y: L.reshape(x, L.shape(y)), [([4, 6], F), ([2, 12], F)]),
        "transpose": (lambda x: L.transpose(x, [2, 0, 1]), [([-1, 3, 4], F)]),
        "squeeze": (lambda x: L.squeeze(x, [1]), [([-1, 1, 4], F)]),
        "unsqueeze": (lambda x: L.unsqueeze(x, [0, 2]), matrix),
        "flatten": (lambda x: L.flatten(x, 2), cube),
        "expand": (lambda x: L.expand(x, [2, 1, 3]), cube),
        "reverse": (lambda x: L.reverse(x, 0), matrix),
        "flip": (lambda x: L.flip(x, [1]), matrix),
        "roll": (lambda x: L.roll(x, 2), matrix),
        "roll_dims": (lambda x: L.roll(x, [1], [0]), matrix),
        "slice": (lambda x: L.slice(x, [0, 1], [1, -3], [3, -1]), matrix),
        "slice_by_variable": (by_index, matrix),
        "strided_slice": (lambda x: L.strided_slice(x, [0, 1], [0, 5], [4, 0], [2, -2]), matrix),
        "gather": (L.gather, rows),
        "gather_nd": (L.gather_nd, [([2, 3, 4], F), ([5, 2], N)]),
        "scatter": (L.scatter, [([4, 6], F), ([2], N), ([2, 6], F)]),
        "scatter_nd": (lambda i, u: L.scatter_nd(i, u, [4, 6]), [([3, 1], N), ([3, 6], F)]),
        "scatter_nd_add": (L.scatter_nd_add, [([4, 6], F), ([3, 1], N), ([3, 6], F)]),
        "index_select": (lambda x, i: L.index_select(x, i, 1), rows),
        "index_sample": (L.index_sample, [([4, 6], F), ([4, 2], N)]),
        "multiplex": (lambda x, y, i: L.multiplex([x, y], i), matrix * 2 + [([4, 1], N)]),
        "shard_index": (lambda x: L.shard_index(x, 20, 2, 0), [([4, 1], N)]),
        "one_hot": (lambda x: L.one_hot(x, 5), [([-1, 1], N)]),
        "pad": (lambda x: L.pad(x, [0, 1, 2, 0], 0.5), matrix),
        "pad2d": (lambda x: L.pad2d(x, [1, 1, 2, 0], "reflect"), image),
        "pad_constant_like": (L.pad_constant_like, [([4, 5], F), ([2, 3], F)]),
        "crop": (lambda x: L.crop(x, [2, 3], [1, 2]), matrix),
        "crop_tensor": (lambda x: L.crop_tensor(x, [2, 3], [1, 2]), matrix),
        "argmax": (lambda x: L.argmax(x, 1), [([-1, 6], F)]),
        "argmin": (L.argmin, matrix),
        "argsort": (lambda x: L.argsort(x, descending=True), [([-1, 6], F)]),
        "topk": (lambda x: L.topk(x, 2), [([-1, 6], F)]),
        "where": (L.where, [([3, 4], B)]),
        "nonzero": (lambda x: L.nonzero(x, as_tuple=True), [([3, 4], B)]),
        "unique": (L.unique, [([6], N)]),
        "unique_with_counts": (L.unique_with_counts, [([6], N)]),
    }


def _of_creation(L):
    matrix = [([-1, 6], F)]
    return {
        "fill_constant": (lambda: L.fill_constant([2, 3], F, 1.5), []),
        "fill_constant_by_shape": (lambda x: L.fill_constant(L.shape(x), F, 2.0), matrix),
        "fill_constant_by_variables": (
            lambda x: L.fill_constant([L.slice(L.shape(x), [0], [0], [1]), 3], N, 2),
            matrix,
        ),
        "fill_constant_batch_size_like": (
            lambda x: L.fill_constant_batch_size_like(x, [-1, 3], F, 2.0),
            matrix,
        ),
        "zeros": (lambda: L.zeros([2], N), []),
        "ones": (lambda: L.ones([2, 2], F), []),
        "full": (lambda: L.full([2], 3.0), []),
        "full_like": (lambda x: L.full_like(x, 2.0), matrix),
        "range": (lambda: L.range(0, 10, 3, "int32"), []),
        "arange": (lambda: L.arange(0, 1, 0.25), []),
        "linspace": (lambda: L.linspace(0, 1, 5, F), []),
        "eye": (lambda: L.eye(2, batch_shape=[3]), []),
        "diag": (L.diag, [([3], F)]),
        "diag_embed": (L.diag_embed, [([2, 3], F)]),
        "meshgrid": (lambda x, y: L.meshgrid([x, y]), [([2], F), ([3], F)]),
        "assign_value": (lambda: L.assign(np.arange(4, dtype="int32").reshape(2, 2)), []),
        "create_global_var": (lambda: L.create_global_var([2], 1.5, F, True), []),
        "create_parameter": (lambda: L.create_parameter([2, 3], F), []),
        "create_tensor": (lambda x: L.assign(x, L.create_tensor(F)), matrix),
        "step_counter": (lambda: L.autoincreased_step_counter(), []),
        "uniform_random": (lambda: L.uniform_random([2, 3]), []),
        "uniform_random_by_shape": (lambda x: L.uniform_random(L.shape(x)), matrix),
        "gaussian_random": (lambda: L.gaussian_random([2, 3]), []),
        "gaussian_random_by_variables": (
            lambda x: L.gaussian_random([L.slice(L.shape(x), [0], [0], [1]), 3]),
            matrix,
        ),
        "uniform_like": (lambda x: L.uniform_random_batch_size_like(x, [-1, 3]), matrix),
        "gaussian_like": (lambda x: L.gaussian_random_batch_size_like(x, [-1, 3]), matrix),
        "randint": (lambda: L.randint(0, 5, [2]), []),
        "randperm": (lambda: L.randperm(5), []),
    }


def _of_operators(L):
    pair = [([-1, 6], F), ([-1, 6], F)]
    matrix = [([-1, 6], F)]
    whole = [([-1, 3], N)]
    fixed = [([4, 6], F)]
    return {
        "a + b": (lambda a, b: a + b, pair),
        "a - 2.5": (lambda a: a - 2.5, matrix),
        "2.5 - a": (lambda a: 2.5 - a, matrix),
        "3 * a": (lambda a: 3 * a, matrix),
        "a / 3": (lambda a: a / 3, matrix),
        "3 / a": (lambda a: 3 / a, matrix),
        "3 / fixed": (lambda a: 3 / a, fixed),
        "a ** 2": (lambda a: a**2, matrix),
        "2 ** a": (lambda a: 2**a, matrix),
        "-a": (lambda a: -a, matrix),
        "a + whole": (lambda a, b: a + b, [([-1, 3], F)] + whole),
        "whole / 2": (lambda a: a / 2, whole),
        "whole % 3": (lambda a: a % 3, whole),
        "whole // 3": (lambda a: a // 3, whole),
        "a < 0.1": (lambda a: a < 0.1, matrix),
        "a == b": (lambda a, b: a == b, pair),
        "astype": (lambda a: a.astype("float64"), matrix),
        "a[0]": (lambda a: a[0], fixed),
        "a[1:3, -1]": (lambda a: a[1:3, -1], fixed),
        "a[:, 0:6:2]": (lambda a: a[:, 0:6:2], fixed),
        "a[::-1]": (lambda a: a[::-1], fixed),
        "a[-1, 2:]": (lambda a: a[-1, 2:], fixed),
        "a[i]": (lambda a: a[L.fill_constant([1], "int32", 1)], fixed),
    }


def describe(fluid, guard, layers, data):
    """Return what each call appends: {name: [ops, startup op types, shapes]}."""
    found = {}
    for name, (build, inputs) in sorted(cases(layers).items()):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), guard():
            args = [data(f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(inputs)]
            result = build(*args)
        outs = result if isinstance(result, (list, tuple)) else [result]
        ops = [
            [op.type]
            + [
                sorted([slot, list(names(slot))] for slot in slots if names(slot))
                for slots, names in (
                    (op.input_names, op.input),
                    (op.output_names, op.output),
                )
            ]
            for op in main.global_block().ops
        ]
        made = [op.type for op in startup.global_block().ops]
        found[name] = [ops, made, [list(v.shape) for v in outs]]
    return found


def write_from_paddle(path):
    """Write what Paddle does."""
    import paddle.fluid as fluid

    found = describe(fluid, fluid.unique_name.guard, fluid.layers, fluid.data)
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(_line(k, v) for k, v in sorted(found.items())) + "\n}\n")


def _line(name, value):
    return f"{json.dumps(name)}: {json.dumps(value)}"


if __name__ == "__main__":
    write_from_paddle(sys.argv[1])
