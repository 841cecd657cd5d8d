"""Predictors of saved models, with the API of `fluid.core` in Paddle 1.x.

A predictor holds the model's variables in its own scope. Values are passed as `PaddleTensor`
(`predictor.run`) or through handles on the inputs and outputs (`copy_from_cpu`, `zero_copy_run`,
`copy_to_cpu`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.io.inference_dir import load_inference_dir
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.run.executor import Executor
from fleetx.static.run.place import CPUPlace, CUDAPlace
from fleetx.static.run.scope import Scope, scope_guard

Array = np.ndarray[Any, Any]
Offsets = Sequence[Sequence[int]]


class PaddleDType(Enum):
    """Element types of predictors."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2


class PaddleBuf:
    """The elements of a tensor, in one dimension."""

    def __init__(self, data: Any = ()) -> None:
        self._data: Array = np.asarray(data).reshape(-1)

    def reset(self, data: Any) -> None:
        """Replace the elements."""
        self._data = np.asarray(data).reshape(-1)

    def length(self) -> int:
        """Return the size in bytes."""
        return self._data.nbytes

    def empty(self) -> bool:
        """Return whether there are no elements."""
        return not self._data.size

    def tolist(self, dtype: str = "float32") -> list[Any]:
        """Return the elements as a list of numbers of a type."""
        return self._data.astype(dtype).tolist()

    def float_data(self) -> list[float]:
        """Return the elements as floating-point numbers."""
        return self.tolist("float32")

    def int64_data(self) -> list[int]:
        """Return the elements as integers."""
        return self.tolist("int64")

    def int32_data(self) -> list[int]:
        """Return the elements as integers."""
        return self.tolist("int32")


class PaddleTensor:
    """An input or output of `predictor.run`: values, a name, and offsets of sequences."""

    def __init__(self, data: Any = None, name: str = "", lod: Offsets = ()) -> None:
        values = np.zeros(0, "float32") if data is None else np.asarray(data)
        self.name = name
        self.lod = [list(level) for level in lod]
        self.shape = list(values.shape)
        self.dtype = _dtype_of(values)
        self.data = PaddleBuf(values)

    def as_ndarray(self) -> Array:
        """Return the values as an array."""
        values = np.array(self.data.tolist(self.dtype.name.lower()), self.dtype.name.lower())
        return values.reshape(self.shape)


def _dtype_of(values: Array) -> PaddleDType:
    name = values.dtype.name.upper()
    if name not in PaddleDType.__members__:
        known = ", ".join(PaddleDType.__members__).lower()
        raise TypeError(f"A PaddleTensor has elements of {known}, not {values.dtype}.")
    return PaddleDType[name]


def _accepted(name: str) -> Any:
    def method(self: AnalysisConfig, *args: Any, **kwargs: Any) -> None:
        self._warn_ignored(name, "it is a setting of Paddle's engines")

    method.__name__ = name
    method.__doc__ = "Accept a setting of Paddle's engines; it has no effect and warns once."
    return method


class AnalysisConfig:
    """The location and the device of a saved model.

    Settings of Paddle's engines (TensorRT, MKL-DNN, graph passes, memory) have no effect; each
    warns once.
    """

    def __init__(self, model: str = "", params: str | None = None) -> None:
        """Set the folder, or the files of the program and of the variables."""
        self._folder, self._program, self._params = "", "", ""
        self._device: int | None = None
        self._feed_fetch_ops = True
        self._names_inputs = False
        self._threads = 1
        self._ignored: set[str] = set()
        self.set_model(model, params)

    def _warn_ignored(self, name: str, why: str) -> None:
        """Warn, the first time, that a setting has no effect."""
        if name not in self._ignored:
            self._ignored.add(name)
            warnings.warn(f"AnalysisConfig.{name} has no effect: {why}.", stacklevel=3)

    def set_model(self, model: str, params: str | None = None) -> None:
        """Set the folder, or the files of the program and of the variables."""
        if params is None:
            self._folder, self._program, self._params = model, "", ""
        else:
            self._folder, self._program, self._params = "", model, params

    def set_prog_file(self, path: str) -> None:
        """Set the file of the program."""
        self._program = path

    def set_params_file(self, path: str) -> None:
        """Set the file of the variables."""
        self._params = path

    def model_dir(self) -> str:
        """Return the folder."""
        return self._folder

    def prog_file(self) -> str:
        """Return the file of the program."""
        return self._program

    def params_file(self) -> str:
        """Return the file of the variables."""
        return self._params

    def enable_use_gpu(self, memory_pool_init_size_mb: int = 100, device_id: int = 0) -> None:
        """Run on a GPU."""
        self._device = device_id

    def disable_gpu(self) -> None:
        """Run on the CPU."""
        self._device = None

    def use_gpu(self) -> bool:
        """Return whether a GPU is used."""
        return self._device is not None

    def gpu_device_id(self) -> int:
        """Return the index of the GPU."""
        return self._device or 0

    def switch_use_feed_fetch_ops(self, x: bool = True) -> None:
        """Set whether `run` is used, or handles; both always work."""
        self._feed_fetch_ops = x

    def use_feed_fetch_ops_enabled(self) -> bool:
        """Return the value set by `switch_use_feed_fetch_ops`."""
        return self._feed_fetch_ops

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Set whether `run` matches inputs by name instead of by order."""
        self._names_inputs = x

    def specify_input_name(self) -> bool:
        """Return whether `run` matches inputs by name."""
        return self._names_inputs

    def set_cpu_math_library_num_threads(self, count: int) -> None:
        """Store the number of threads, without effect: set OMP_NUM_THREADS."""
        self._warn_ignored("set_cpu_math_library_num_threads", "set OMP_NUM_THREADS instead")
        self._threads = count

    def cpu_math_library_num_threads(self) -> int:
        """Return the value set by `set_cpu_math_library_num_threads`."""
        return self._threads

    def disable_glog_info(self) -> None:
        """Log nothing, as always."""

    @property
    def place(self) -> CPUPlace | CUDAPlace:
        """Where the model runs."""
        return CPUPlace() if self._device is None else CUDAPlace(self._device)


for _name in (
    *("switch_ir_optim", "switch_ir_debug", "enable_memory_optim", "enable_profile"),
    *("enable_tensorrt_engine", "enable_mkldnn", "set_mkldnn_cache_capacity", "set_mkldnn_op"),
    *("enable_quantizer", "enable_ngraph", "enable_cudnn", "delete_pass"),
):
    setattr(AnalysisConfig, _name, _accepted(_name))


class ZeroCopyTensor:
    """A handle on an input or output of a predictor."""

    def __init__(self, values: dict[str, LoDTensor], name: str) -> None:
        self._values = values
        self.name = name
        self._shape: list[int] | None = None
        self._lod: list[list[int]] = []

    def reshape(self, shape: Sequence[int]) -> None:
        """Set the shape that the next values must have."""
        self._shape = list(shape)

    def copy_from_cpu(self, data: Any) -> None:
        """Set the values."""
        values = np.asarray(data)
        if self._shape is not None and values.size != np.prod(self._shape):
            raise ValueError(
                f"{self.name!r} was reshaped to {self._shape}, but the values have shape "
                f"{list(values.shape)}."
            )
        tensor = LoDTensor()
        tensor.set(values.reshape(values.shape if self._shape is None else self._shape), CPUPlace())
        tensor.set_lod(self._lod)
        self._values[self.name] = tensor

    def copy_to_cpu(self) -> Array:
        """Return the values of the last run."""
        return np.array(self._value())

    def set_lod(self, lod: Offsets) -> None:
        """Set the offsets of sequences, before or after the values."""
        self._lod = [list(level) for level in lod]
        if self.name in self._values:
            self._values[self.name].set_lod(self._lod)

    def lod(self) -> list[list[int]]:
        """Return the offsets of sequences."""
        return self._value().lod()

    def shape(self) -> list[int]:
        """Return the shape of the values."""
        return list(self.copy_to_cpu().shape)

    def type(self) -> PaddleDType:
        """Return the element type."""
        return _dtype_of(self.copy_to_cpu())

    def _value(self) -> LoDTensor:
        if self.name not in self._values:
            raise RuntimeError(
                f"{self.name!r} has no value yet: copy inputs, then zero_copy_run()."
            )
        return self._values[self.name]


class AnalysisPredictor:
    """A loaded model that computes its outputs from its inputs."""

    def __init__(self, config: AnalysisConfig) -> None:
        """Load the model of a config."""
        self._config = config
        self._scope = Scope()
        self._executor = Executor(config.place)
        folder, names = config.model_dir(), {}
        if config.prog_file():
            folder = os.path.dirname(config.prog_file())
            names["model_filename"] = os.path.basename(config.prog_file())
            if config.params_file():
                names["params_filename"] = os.path.relpath(config.params_file(), folder or ".")
        with scope_guard(self._scope):
            self._program, self._inputs, fetches = load_inference_dir(
                folder or ".", self._executor, **names
            )
        self._fetches = fetches
        self._values: dict[str, LoDTensor] = {}

    def get_input_names(self) -> list[str]:
        """Return the names of the inputs."""
        return list(self._inputs)

    def get_output_names(self) -> list[str]:
        """Return the names of the outputs."""
        return [var.name for var in self._fetches]

    def get_input_tensor_shape(self) -> dict[str, list[int]]:
        """Return the shapes of the inputs as the program declares them."""
        block = self._program.global_block()
        return {name: list(block.var(name).shape) for name in self._inputs}

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """Return a handle on an input."""
        return self._handle(name, self.get_input_names(), "inputs")

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """Return a handle on an output."""
        return self._handle(name, self.get_output_names(), "outputs")

    def _handle(self, name: str, names: list[str], kind: str) -> ZeroCopyTensor:
        if name not in names:
            raise ValueError(f"{name!r} is not one of the {kind} {names}.")
        return ZeroCopyTensor(self._values, name)

    def zero_copy_run(self) -> None:
        """Compute the outputs from the copied inputs."""
        missing = [name for name in self._inputs if name not in self._values]
        if missing:
            raise RuntimeError(f"Copy values to the inputs {missing} before zero_copy_run().")
        feed = {name: self._values[name] for name in self._inputs}
        found = self._executor.run(
            self._program,
            feed=feed,
            fetch_list=self._fetches,
            scope=self._scope,
            return_numpy=False,
        )
        self._values.update(zip(self.get_output_names(), found, strict=True))

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Return the outputs for inputs, given in the model's order or matched by name."""
        names = self.get_input_names()
        if len(inputs) != len(names):
            raise ValueError(f"The model takes {len(names)} inputs {names}, not {len(inputs)}.")
        if self._config.specify_input_name():
            names = [tensor.name for tensor in inputs]
        for name, tensor in zip(names, inputs, strict=True):
            handle = self.get_input_tensor(name)
            handle.copy_from_cpu(tensor.as_ndarray())
            handle.set_lod(tensor.lod)
        self.zero_copy_run()
        return [
            PaddleTensor(np.array(self._values[name]), name, self._values[name].lod())
            for name in self.get_output_names()
        ]

    def clone(self) -> AnalysisPredictor:
        """Return another predictor of the same model, for another thread."""
        return AnalysisPredictor(self._config)

    def program(self) -> Any:
        """Return the program."""
        return self._program


def create_paddle_predictor(config: AnalysisConfig) -> AnalysisPredictor:
    """Load the model of a config."""
    if not isinstance(config, AnalysisConfig):
        raise TypeError(f"config must be an AnalysisConfig, not {type(config).__name__}.")
    return AnalysisPredictor(config)


export_defined(globals())
