"""Functions of tensors with 2.x signatures, against NumPy."""

import numpy as np
import pytest

import fleetx.static as static
from fleetx.static import tensor as T
from fleetx.static.layers.io import static_data
from fleetx.static.tensor import common

A = np.array([[1.5, -2.0, 3.0], [4.0, 0.5, -6.0]], dtype="float32")
B = np.array([[2.0, 5.0, -1.0], [1.0, 0.5, 2.0]], dtype="float32")
I = np.array([2, 0], dtype="int64")  # noqa: E741
M = A > 0


def run(build, **feeds):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        variables = {
            name: static_data(name, value.shape, str(value.dtype)) for name, value in feeds.items()
        }
        fetched = build(**variables)
    single = not isinstance(fetched, list | tuple)
    executor = static.Executor()
    values = executor.run(main, feed=feeds, fetch_list=[fetched] if single else list(fetched))
    return values[0] if single else values


CASES = {
    "abs": (lambda a: T.abs(a), np.abs(A)),
    "add": (lambda a, b: T.add(a, b), A + B),
    "subtract": (lambda a, b: T.subtract(a, b), A - B),
    "multiply_number": (lambda a: T.multiply(a, 3.0), A * 3),
    "divide": (lambda a, b: T.divide(a, b), A / B),
    "maximum": (lambda a, b: T.maximum(a, b), np.maximum(A, B)),
    "pow": (lambda a: T.pow(a, 2), A**2),
    "neg": (lambda a: T.neg(a), -A),
    "scale": (lambda a: T.scale(a, 2.0, 1.0), 2 * A + 1),
    "clip": (lambda a: T.clip(a, -1.0, 2.0), A.clip(-1, 2)),
    "clip_below": (lambda a: T.clip(a, max=2.0), A.clip(max=2)),
    "sum": (lambda a: T.sum(a), A.sum().reshape(1)),
    "sum_axis": (lambda a: T.sum(a, axis=1, keepdim=True), A.sum(1, keepdims=True)),
    "sum_axes": (lambda a: T.sum(a, axis=[0, 1]), A.sum().reshape(1)),
    "sum_dtype": (lambda a: T.sum(a, 0, "float64"), A.astype("float64").sum(0)),
    "mean": (lambda a: T.mean(a, axis=-1), A.mean(-1)),
    "max": (lambda a: T.max(a, axis=0), A.max(0)),
    "min": (lambda a: T.min(a), A.min().reshape(1)),
    "amax": (lambda a: T.amax(a, axis=1), A.max(1)),
    "prod": (lambda a: T.prod(a, axis=1), A.prod(1)),
    "all": (lambda m: T.all(m, axis=1), M.all(1)),
    "any": (lambda m: T.any(m), M.any().reshape(1)),
    "std": (lambda a: T.std(a, axis=1), A.std(1, ddof=1)),
    "var_all": (lambda a: T.var(a), A.var(ddof=1).reshape(1)),
    "var_biased": (lambda a: T.var(a, 0, unbiased=False), A.var(0)),
    "median": (lambda a: T.median(a), np.median(A).reshape(1).astype("float32")),
    "median_axis": (lambda i: T.median(i, keepdim=True), np.array([1.0], "float32")),
    "count_nonzero": (lambda m: T.count_nonzero(m, axis=1), M.sum(1)),
    "nansum": (lambda a: T.nansum(T.log(a)), np.nansum(np.log(np.where(A > 0, A, 1))).reshape(1)),
    "deg2rad": (lambda a: T.rad2deg(T.deg2rad(a)), A),
    "arange_float": (lambda: T.arange(0, 0.6, 0.1, "float32"), np.arange(6, dtype="float32") * 0.1),
    "cumsum": (lambda a: T.cumsum(a), A.cumsum()),
    "cumsum_axis": (lambda a: T.cumsum(a, axis=1), A.cumsum(1)),
    "cumprod": (lambda a: T.cumprod(a, dim=0), A.cumprod(0)),
    "logsumexp": (lambda a: T.logsumexp(a), np.log(np.exp(A).sum()).reshape(1)),
    "isnan": (lambda a: T.isnan(a), np.isnan(A)),
    "add_n": (lambda a, b: T.add_n([a, b, a]), 2 * A + B),
    "inner": (lambda a, b: T.inner(a, b), np.inner(A, B)),
    "outer": (lambda a, b: T.outer(a, b), np.outer(A, B)),
    "lerp": (lambda a, b: T.lerp(a, b, 0.25), A + 0.25 * (B - A)),
    "matmul": (lambda a, b: T.matmul(a, b, transpose_y=True), A @ B.T),
    "mm": (lambda a, b: T.mm(a, T.t(b)), A @ B.T),
    "dot": (lambda a, b: T.dot(a, b), (A * B).sum(1, keepdims=True)),
    "einsum": (lambda a, b: T.einsum("ij,kj->ik", a, b), A @ B.T),
    "norm": (lambda a: T.norm(a), np.linalg.norm(A).reshape(1)),
    "norm_axis": (lambda a: T.norm(a, p=1, axis=1), np.abs(A).sum(1)),
    "norm_matrix": (lambda a: T.norm(a, p=3.0, axis=[0, 1]), (np.abs(A) ** 3).sum() ** (1 / 3)),
    "reshape": (lambda a: T.reshape(a, [3, -1]), A.reshape(3, 2)),
    "transpose": (lambda a: T.transpose(a, [1, 0]), A.T),
    "moveaxis": (lambda a: T.moveaxis(T.unsqueeze(a, 0), 0, -1), A[..., None]),
    "concat": (lambda a, b: T.concat([a, b], axis=1), np.concatenate([A, B], 1)),
    "stack": (lambda a, b: T.stack([a, b], axis=1), np.stack([A, B], 1)),
    "squeeze": (lambda a: T.squeeze(T.unsqueeze(a, [0, 3])), A),
    "flatten": (lambda a: T.flatten(a), A.reshape(-1)),
    "tile": (lambda a: T.tile(a, [2, 1]), np.tile(A, (2, 1))),
    "expand": (lambda a: T.expand(a, [4, 2, 3]), np.broadcast_to(A, (4, 2, 3))),
    "expand_as": (lambda a, b: T.expand_as(T.sum(a, 0), b), np.broadcast_to(A.sum(0), (2, 3))),
    "gather": (lambda a, i: T.gather(a, i, axis=1), A[:, I]),
    "index_select": (lambda a, i: T.index_select(a, i, axis=1), A[:, I]),
    "flip": (lambda a: T.flip(a, axis=1), A[:, ::-1]),
    "roll": (lambda a: T.roll(a, 1, axis=1), np.roll(A, 1, 1)),
    "slice": (lambda a: T.slice(a, [1], [0], [2]), A[:, :2]),
    "strided_slice": (lambda a: T.strided_slice(a, [1], [0], [3], [2]), A[:, ::2]),
    "where": (lambda m, a, b: T.where(m, a, b), np.where(M, A, B)),
    "where_number": (lambda m, a: T.where(m, a, 0.0), np.where(M, A, 0)),
    "masked_select": (lambda a, m: T.masked_select(a, m), A[M]),
    "nonzero": (lambda m: T.nonzero(m), np.argwhere(M)),
    "argmax": (lambda a: T.argmax(a, axis=1), A.argmax(1)),
    "argmax_flat": (lambda a: T.argmax(a), A.argmax().reshape(1)),
    "argmin": (lambda a: T.argmin(a, axis=0, dtype="int32"), A.argmin(0).astype("int32")),
    "sort": (lambda a: T.sort(a, axis=1), np.sort(A, 1)),
    "argsort": (lambda a: T.argsort(a, axis=1, descending=True), (-A).argsort(1)),
    "equal": (lambda a, b: T.equal(a, b), A == B),
    "less_than_number": (lambda a: T.less_than(a, 1.0), A < 1),
    "logical_and": (lambda m: T.logical_and(m, T.logical_not(m)), M & ~M),
    "allclose": (lambda a: T.allclose(a, a), np.array([True])),
    "equal_all": (lambda a, b: T.equal_all(a, b), np.array([False])),
    "cast": (lambda a: T.cast(a, "int64"), A.astype("int64")),
    "zeros": (lambda: T.zeros([2, 2]), np.zeros((2, 2), "float32")),
    "ones_like": (lambda i: T.ones_like(i), np.ones_like(I)),
    "full": (lambda: T.full([2], 7, "int64"), np.full(2, 7, "int64")),
    "full_like": (lambda a: T.full_like(a, 2.0), np.full_like(A, 2)),
    "arange": (lambda: T.arange(5), np.arange(5)),
    "arange_step": (lambda: T.arange(1, 7, 2, "float32"), np.arange(1, 7, 2, dtype="float32")),
    "linspace": (lambda: T.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype="float32")),
    "eye": (lambda: T.eye(2, 3), np.eye(2, 3, dtype="float32")),
    "diag": (lambda a: T.diag(T.sum(a, 0)), np.diag(A.sum(0))),
    "tril": (lambda a: T.tril(a), np.tril(A)),
    "to_tensor": (lambda: T.to_tensor([1.0, 2.0]), np.array([1, 2], "float32")),
    "to_tensor_int": (lambda: T.to_tensor(np.array([3, 4])), np.array([3, 4])),
    "shape": (lambda a: T.shape(a), np.array([2, 3], "int32")),
    "numel": (lambda a: T.numel(a), np.array([6])),
    "trace": (lambda a: T.trace(a), np.trace(A).reshape(1)),
    "diagonal": (lambda a: T.diagonal(a), A.diagonal()),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name):
    build, expected = CASES[name]
    known = {"a": A, "b": B, "i": I, "m": M}
    names = build.__code__.co_varnames[: build.__code__.co_argcount]
    got = np.asarray(run(build, **{n: known[n] for n in names}))
    expected = np.asarray(expected)
    assert got.reshape(expected.shape).dtype == expected.dtype
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-5)


def test_split_chunk_and_topk_return_several():
    parts = run(lambda a: T.split(a, [1, 2], axis=1), a=A)
    np.testing.assert_array_equal(parts[1], A[:, 1:])
    assert len(run(lambda a: T.chunk(a, 3, axis=1), a=A)) == 3
    values, indices = run(lambda a: T.topk(a, 2, axis=0), a=A)
    np.testing.assert_array_equal(values, np.sort(A, 0)[::-1])
    assert indices.dtype == np.int64
    values, counts = run(lambda i: T.unique(i, return_counts=True), i=np.array([3, 1, 3]))
    np.testing.assert_array_equal(values, [1, 3])
    np.testing.assert_array_equal(counts, [1, 2])


def test_random_tensors_have_shape_and_range():
    x = run(lambda: T.uniform([200], min=2.0, max=3.0))
    assert x.shape == (200,)
    assert 2 <= x.min() < x.max() <= 3
    assert run(lambda: T.randn([3, 4])).shape == (3, 4)
    numbers = run(lambda: T.randint(5, shape=[100]))
    assert numbers.dtype == np.int64
    assert set(numbers) <= set(range(5))
    assert sorted(run(lambda: T.randperm(6))) == list(range(6))


def test_broadcast_shape():
    assert T.broadcast_shape([2, 1, 3], [3, 1]) == [2, 3, 3]
    assert T.broadcast_shape([-1, 1], [4]) == [-1, 4]
    with pytest.raises(ValueError, match="do not broadcast"):
        T.broadcast_shape([2], [3])


def test_values_of_parameters():
    w = static.layers.create_parameter([2], "float32")
    with pytest.raises(ValueError, match="run the startup program"):
        w.get_value()
    static.Executor().run(static.default_startup_program())
    w.set_value(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(np.asarray(w.get_value()), np.array([1, 2], "float32"))
    with pytest.raises(ValueError, match=r"has shape \(2,\)"):
        w.set_value(np.zeros(3))


def test_default_dtype():
    assert common.get_default_dtype() == "float32"
    common.set_default_dtype("float64")
    try:
        assert run(lambda: T.zeros([1])).dtype == np.float64
    finally:
        common.set_default_dtype("float32")
    with pytest.raises(TypeError, match="takes float16"):
        common.set_default_dtype("int32")


def test_wrong_arguments_name_the_function():
    with pytest.raises(TypeError, match="'x' in flatten must be Variable"):
        T.flatten(3)
    with pytest.raises(ValueError, match="low < high"):
        T.randint(3, 3)
    with pytest.raises(TypeError, match="must be a Variable"):
        T.add(1, 2)
