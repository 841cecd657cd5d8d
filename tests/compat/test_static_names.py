"""Names of Paddle 2.0 that static-mode scripts use beside layers: states, places, helpers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import paddle
from paddle import static
from paddle.utils import Profiler, ProfilerOptions, get_profiler


def run(build: Any, **feeds: np.ndarray) -> list[np.ndarray]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        inputs = [static.data(n, list(a.shape), str(a.dtype)) for n, a in feeds.items()]
        outputs = build(*inputs)
    executor = static.Executor(paddle.CPUPlace())
    with static.scope_guard(static.Scope()):
        executor.run(startup)
        return executor.run(main, feed=feeds, fetch_list=list(outputs))


def test_functions_named_in_place_return_new_variables() -> None:
    x, index = np.arange(6, dtype="float32").reshape(1, 6), np.array([0])

    def build(x: Any, index: Any) -> list[Any]:
        return [
            paddle.reshape_(x, [2, 3]),
            paddle.squeeze_(x, 0),
            paddle.unsqueeze_(x, 1),
            paddle.scatter_(x, index, x + 1),
            paddle.nn.functional.elu_(x - 3.0),
            x,
        ]

    shaped, flat, deep, scattered, elu, same = run(build, x=x, index=index)
    assert (shaped.shape, flat.shape, deep.shape) == ((2, 3), (6,), (1, 1, 6))
    np.testing.assert_array_equal(scattered, x + 1)
    np.testing.assert_allclose(elu[0, 0], np.expm1(-3), rtol=1e-6)
    np.testing.assert_array_equal(same, x)
    assert paddle.tensor.manipulation.reshape_ is paddle.tensor.reshape_


def test_parts_of_complex_numbers() -> None:
    x = np.array([1 + 2j, 3 - 4j], "complex64")
    y = np.array([1.0, 2.0], "float32")
    found = run(
        lambda x, y: [paddle.real(x), paddle.imag(x), paddle.conj(x), paddle.conj(y)], x=x, y=y
    )
    for value, wanted in zip(found, [x.real, x.imag, x.conj(), y], strict=True):
        assert value.dtype == wanted.dtype
        np.testing.assert_array_equal(value, wanted)
    with pytest.raises(TypeError, match="complex64"):
        run(lambda y: [paddle.real(y)], y=y)


def test_product_and_densities() -> None:
    x = np.array([[0.5, 1.0]], "float32")

    def build(x: Any) -> list[Any]:
        normal = paddle.distribution.Normal(0.0, 2.0)
        assert isinstance(normal, paddle.distribution.Distribution)
        uniform = paddle.distribution.Uniform(0.0, 4.0)
        return [paddle.tensor.math.mul(x, x.t()), normal.probs(x), uniform.probs(x)]

    product, normal, uniform = run(build, x=x)
    np.testing.assert_allclose(product, [[1.25]])
    expected = torch.distributions.Normal(0.0, 2.0).log_prob(torch.from_numpy(x)).exp()
    np.testing.assert_allclose(normal, expected.numpy(), rtol=1e-5)
    np.testing.assert_allclose(uniform, [[0.25, 0.25]])


def test_chances_of_classes() -> None:
    x = np.array([[1.0, 3.0], [2.0, 2.0], [4.0, 0.0]], "float32")
    one, rows = np.array([1, 0, 1]), np.array([[1], [0], [0]])

    def build(x: Any, one: Any, rows: Any) -> list[Any]:
        whole = paddle.distribution.Categorical(x)
        single = paddle.distribution.Categorical(x[0])
        outputs = [whole.probs(one), whole.log_prob(rows), single.probs(one), whole.sample([2, 5])]
        return [*outputs, whole.entropy(), single.entropy()]

    each, logs, single, drawn, entropy, number = run(build, x=x, one=one, rows=rows)
    np.testing.assert_allclose(each, [[0.75, 0.25, 0.75], [0.5] * 3, [0, 1, 0]])
    np.testing.assert_allclose(logs, np.log([[0.75], [0.5], [1]]), rtol=1e-6)
    np.testing.assert_allclose(single, [0.75, 0.25, 0.75])
    assert drawn.shape == (2, 5, 3)
    assert not drawn[..., 2].any()
    theirs = torch.distributions.Categorical(logits=torch.from_numpy(x)).entropy().numpy()
    np.testing.assert_allclose(entropy, theirs, rtol=1e-5)
    np.testing.assert_allclose(number.reshape(-1), theirs[:1], rtol=1e-5)


def test_gradients_are_not_switched_off_in_programs() -> None:
    @paddle.no_grad()
    def twice(x: Any) -> Any:
        with paddle.framework.no_grad():
            return x * 2.0

    def build(x: Any) -> list[Any]:
        x.stop_gradient = False
        return static.gradients([twice(x)], [x])

    assert run(build, x=np.ones(2, "float32"))[0].tolist() == [2.0, 2.0]
    assert paddle.tensor.to_string.set_printoptions(precision=3) is None


def test_states_of_gpu_generators() -> None:
    states = paddle.get_cuda_rng_state()
    assert len(states) == torch.cuda.device_count()
    paddle.set_cuda_rng_state(states)
    with pytest.raises(ValueError, match="takes a state per GPU"):
        paddle.set_cuda_rng_state([*states, None])


def test_kunlun_devices_are_refused() -> None:
    for make in (paddle.device.XPUPlace, lambda number: static.xpu_places([number])):
        with pytest.raises(RuntimeError, match=r"XPUPlace\(1\) names a Kunlun device"):
            make(1)
    assert not paddle.device.is_compiled_with_xpu()


def test_average_of_some_parameters() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 2])
        loss = paddle.mean(static.nn.fc(static.nn.fc(x, 2), 1))
        paddle.optimizer.SGD(0.1).minimize(loss)
        first = main.all_parameters()[0]
        average = paddle.incubate.optimizer.ModelAverage(
            0.5, parameters=[first], min_average_window=2, max_average_window=10
        )
        average.minimize(loss)
        average.step()
    averaged = [op.input("param") for op in main.global_block().ops if "average" in op.type]
    assert averaged == [[first.name]]
    executor, scope, seen = static.Executor(paddle.CPUPlace()), static.Scope(), []
    with static.scope_guard(scope):
        executor.run(startup)
        value = scope.find_var(first.name).get_tensor()
        for _ in range(3):
            executor.run(main, feed={"x": np.ones((1, 2), "float32")})
            seen.append(np.array(value))
        with average.apply(executor):
            np.testing.assert_allclose(np.array(value), np.mean(seen, axis=0), rtol=1e-5)
        np.testing.assert_array_equal(np.array(value), seen[-1])


def test_weights_are_local_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paddle.utils import download

    monkeypatch.setattr(download, "WEIGHTS_HOME", str(tmp_path))
    url = "https://example.com/a/net.tar.gz"
    with pytest.raises(FileNotFoundError, match=r"put the file net.tar.gz into"):
        download.get_weights_path_from_url(url)
    (tmp_path / "net.tar.gz").write_bytes(b"weights")
    assert download.get_weights_path_from_url(url) == str(tmp_path / "net.tar.gz")
    with pytest.raises(ValueError, match="its MD5 sum is not 123"):
        download.get_weights_path_from_url(url, "123")
    (tmp_path / "net").mkdir()
    assert download.get_path_from_url(url, str(tmp_path)) == str(tmp_path / "net")
    assert download.is_url(url)
    assert not download.is_url("net")


def test_modules_of_helpers() -> None:
    from paddle.utils.deprecated import deprecated
    from paddle.utils.lazy_import import try_import

    assert try_import("math").pi > 3
    with pytest.raises(ImportError, match="pip install no_such_module"):
        try_import("no_such_module")
    with pytest.warns(DeprecationWarning, match=r"old is deprecated, since 2.0, use new\."):
        assert deprecated("new", "2.0")(_old)() == 1
    assert paddle.incubate.reader.distributed_batch_reader
    assert paddle.utils.deprecated is deprecated


def _old() -> int:
    return 1


def test_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_PLOT", "True")
    ploter = paddle.utils.plot.Ploter("train", "test")
    ploter.append("train", 0, 2.5)
    ploter.plot(str(tmp_path / "curve.png"))
    assert list(tmp_path.iterdir()) == []
    assert ploter.curves["train"].value == [2.5]
    with pytest.raises(ValueError, match="no curve 'other'; its curves are 'train', 'test'"):
        ploter.append("other", 0, 1.0)
    ploter.reset()
    assert ploter.curves["train"].step == []


def test_profiled_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ProfilerOptions({"batch_range": [1, 3], "profile_path": str(tmp_path / "profile")})
    assert options["timeline_path"] is None
    states = []
    with Profiler(options=options.with_state("CPU")) as profiler:
        assert get_profiler() is profiler
        for _ in range(4):
            states.append(profiler._is_running)
            run(lambda x: [x + 1.0], x=np.ones(1, "float32"))
            profiler.record_step()
        profiler.reset()
    assert states == [False, True, True, False]
    assert capsys.readouterr().out
    assert get_profiler() is not profiler
    with pytest.raises(ValueError, match="ProfilerOptions has no colour; it takes state"):
        ProfilerOptions({"colour": "red"})
    with pytest.raises(ValueError, match="ProfilerOptions has no colour"):
        _ = options["colour"]


def test_what_is_open_says_so() -> None:
    with pytest.raises(AttributeError, match=r"localsgd_optimizer is not .*: .*strategy.localsgd"):
        _ = paddle.distributed.fleet.meta_optimizers.localsgd_optimizer
