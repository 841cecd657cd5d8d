"""Layers of `contrib` for recommendation: trees of items, ranks, shuffled batches, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import INTS
from fleetx.static.errors import ShapeError
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.layers.slicing import slice
from fleetx.static.layers.tensor import reshape


def shuffle_batch(x: Variable, seed: int | Variable | None = None) -> Variable:
    """Permute the rows of a batch, in Paddle's order for the seed.

    Args:
        x: the batch; all dimensions but the last are rows.
        seed: the first seed, or an int64 Variable that holds the seed of the next run; by default
            the program's random_seed, or a random one.
    """
    helper = LayerHelper("shuffle_batch")
    if seed is None:
        seed = helper.main_program.random_seed or int(np.random.randint(-65536, 65535))
    attrs = {}
    if isinstance(seed, int):
        attrs["startup_seed"] = seed
        name = unique_name.generate("shuffle_batch_seed")
        seed = helper.create_variable(name=name, dtype="int64", persistable=True)
    out = helper.create_variable_for_type_inference(x.dtype)
    index = helper.create_variable_for_type_inference("int64")
    helper.append_op(
        type="shuffle_batch",
        inputs={"X": x, "Seed": seed},
        outputs={"Out": out, "ShuffleIdx": index, "SeedOut": seed},
        attrs=attrs,
    )
    return out


def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: Any = None, dtype: Any = "int32"
) -> tuple[Variable, Variable]:
    """Look up the children of nodes of a tree, and which of them are items.

    Args:
        x: int32 or int64 ids of nodes; 0 is padding.
        node_nums: the number of nodes, the padding included.
        child_nums: the maximum number of children of a node.
        param_attr: the attributes of the tree, [node_nums, 3 + child_nums]: the item, the layer,
            the parent and the children of each node.
        dtype: the element type of the tree and of the results, int32 or int64.
    """
    layer = "tdm_child"
    check_dtype(dtype, "dtype", INTS, layer)
    helper = LayerHelper(layer, param_attr=param_attr)
    shape = [node_nums, 3 + child_nums]
    tree = helper.create_parameter(helper.param_attr, shape, dtype, default_initializer=Constant(0))
    tree.stop_gradient = True
    attrs = {"child_nums": child_nums, "dtype": int(convert_dtype(dtype))}
    inputs = {"X": x, "TreeInfo": tree}
    child, mask = helper.outputs_of(layer, inputs, attrs, Child=dtype, LeafMask=dtype)
    return child, mask


def _check_layers(samples: Sequence[int], nodes: Sequence[int], leaves: int | None) -> list[int]:
    """Return the offsets of the layers' nodes; reject more samples than nodes."""
    if len(samples) != len(nodes):
        raise ValueError(
            f"neg_samples_num_list has {len(samples)} layers and layer_node_num_list {len(nodes)}; "
            "both need one number per layer."
        )
    for layer, (count, size) in enumerate(zip(samples, nodes, strict=True)):
        if count >= size:
            raise ValueError(
                f"layer {layer} has {size} nodes, so at most {size - 1} of them can be negative "
                f"samples, not {count}."
            )
    offsets = [0, *np.cumsum(nodes).tolist()]
    if leaves is None or leaves >= offsets[-1]:
        raise ValueError(f"leaf_node_num must be below the number of nodes, not {leaves}.")
    return offsets


def tdm_sampler(
    x: Variable,
    neg_samples_num_list: Sequence[int],
    layer_node_num_list: Sequence[int],
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: Any = "int32",
    dtype: Any = "int32",
) -> tuple[Any, Any, Any]:
    """Sample nodes of every layer of a tree: the one on an item's path, and negatives.

    Args:
        x: int32 or int64 ids of items, shape [batch, 1].
        neg_samples_num_list: the number of negatives per layer.
        layer_node_num_list: the number of nodes per layer.
        leaf_node_num: the number of items.
        tree_travel_attr: the attributes of the paths, [leaf_node_num, layers].
        tree_layer_attr: the attributes of the nodes, layer by layer, [nodes, 1].
        output_positive: whether the node on the path comes first.
        output_list: return a list with a Variable [batch, samples, 1] per layer instead of one
            Variable [batch, samples of all layers].
        seed: the seed of every run; 0 draws new samples.
        tree_dtype: the element type of the tree, int32 or int64.
        dtype: the element type of the results.

    Returns:
        Nodes, labels (1 on the path) and a mask, which is 0 where the path has ended.
    """
    layer = "tdm_sampler"
    check_dtype(tree_dtype, "tree_dtype", INTS, layer)
    check_dtype(dtype, "dtype", INTS, layer)
    offsets = _check_layers(neg_samples_num_list, layer_node_num_list, leaf_node_num)
    helper = LayerHelper(layer)
    tables = {
        "Travel": (tree_travel_attr, [leaf_node_num, len(layer_node_num_list)]),
        "Layer": (tree_layer_attr, [offsets[-1], 1]),
    }
    inputs = {"X": x}
    for slot, (attr, shape) in tables.items():
        inputs[slot] = helper.create_parameter(
            attr, shape, tree_dtype, default_initializer=Constant(0)
        )
    attrs = {
        "neg_samples_num_list": list(neg_samples_num_list),
        "output_positive": output_positive,
        "layer_offset_lod": offsets,
        "seed": seed,
        "dtype": int(convert_dtype(dtype)),
    }
    types = dict.fromkeys(("Out", "Labels", "Mask"), dtype)
    found = helper.outputs_of(layer, inputs, attrs, " ".join(types), **types)
    if not output_list:
        return found[0], found[1], found[2]
    cut: list[list[Variable]] = [[], [], []]
    start = 0
    for count in neg_samples_num_list:
        end = start + count + int(output_positive)
        parts = [slice(value, [1], [start], [end]) for value in found]
        for parts_so_far, part in zip(cut, parts, strict=True):
            part = reshape(part, [-1, end - start, 1])
            part.stop_gradient = True
            parts_so_far.append(part)
        start = end
    return cut[0], cut[1], cut[2]


def rank_attention(
    input: Variable,
    rank_offset: Variable,
    rank_param_shape: Sequence[int],
    rank_param_attr: Any,
    max_rank: int = 3,
) -> Variable:
    """Multiply the rows that a row refers to by the matrix of both ranks, and add them up.

    Args:
        input: rows of shape [rows, width].
        rank_offset: int32 of shape [rows, 2 * max_rank + 1]: the row's own rank, and the rank and
            the index of each row it refers to; ranks begin at 1, and 0 means none.
        rank_param_shape: [width * max_rank * max_rank, width of the result].
        rank_param_attr: the attributes of the matrices.
        max_rank: the maximum rank.
    """
    layer = "rank_attention"
    if input.shape[1] * max_rank * max_rank != rank_param_shape[0]:
        raise ShapeError(
            f"rank_param_shape of {layer} is {list(rank_param_shape)}, but rows of width "
            f"{input.shape[1]} and max_rank {max_rank} need "
            f"{input.shape[1] * max_rank * max_rank} rows."
        )
    helper = LayerHelper(layer)
    param = helper.create_parameter(rank_param_attr, rank_param_shape, input.dtype)
    inputs = {"X": input, "RankOffset": rank_offset, "RankParam": param}
    return helper.output_of(layer, inputs, {"MaxRank": max_rank}, dtype=input.dtype)


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Accumulate the statistics of click prediction metrics over all batches.

    Args:
        input: predictions of shape [batch, 1].
        label: labels of the same shape, float32.

    Returns:
        The sums of squared and of absolute errors, of predictions, of their sigmoids and of
        labels, and the number of rows: persistable Variables of shape [1].
    """
    if input.shape != label.shape:
        raise ShapeError(
            f"ctr_metric_bundle takes predictions and labels of one shape, not {input.shape} and "
            f"{label.shape}."
        )
    helper = LayerHelper("ctr_metric_bundle")

    def create(shape: list[int], persistable: bool = False) -> Variable:
        return helper.create_global_variable(persistable, dtype="float32", shape=shape)

    # Paddle does not name these variables: their generated names depend on the order.
    absolute, squared, predicted, likely, positive, rows = (create([1], True) for _ in range(6))
    error, sigmoid, ones = (create([-1, 1]) for _ in range(3))
    for total in (absolute, squared, predicted, likely, positive, rows):
        helper.set_variable_initializer(total, Constant(0.0))

    def append(op: str, inputs: dict[str, Variable], out: Variable, **attrs: Any) -> None:
        helper.append_op(type=op, inputs=inputs, outputs={"Out": out}, attrs=attrs)

    def count(op: str, source: Variable, total: Variable) -> None:
        batch = create([1])
        append(op, {"X": source}, batch)
        append("elementwise_add", {"X": batch, "Y": total}, total)

    append("elementwise_sub", {"X": input, "Y": label}, error)
    count("squared_l2_norm", error, squared)
    count("l1_norm", error, absolute)
    count("reduce_sum", input, predicted)
    append("sigmoid", {"X": input}, sigmoid)
    count("reduce_sum", sigmoid, likely)
    count("reduce_sum", label, positive)
    kind = int(convert_dtype("float32"))
    ones_of = {"shape": [-1, 1], "dtype": kind, "value": 1.0}
    append("fill_constant_batch_size_like", {"Input": label}, ones, **ones_of)
    count("reduce_sum", ones, rows)
    return squared, absolute, predicted, likely, positive, rows


export_defined(globals())
