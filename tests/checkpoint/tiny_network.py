"""A small network built from raw ops, so that these tests depend on no layer."""

import numpy as np

from fleetx.static import CPUPlace, Executor, Program, program_guard


class Network:
    """y = relu(x w + b) with a training step's worth of extra variables."""

    def __init__(self, scale=1.0):
        self.main, self.startup = Program(), Program()
        with program_guard(self.main, self.startup):
            block = self.main.global_block()
            self.x = block.create_var(
                name="x", shape=[-1, 3], dtype="float32", is_data=True, need_check_feed=True
            )
            self.w = self._parameter("w", [3, 4], scale)
            self.b = self._parameter("b", [4], -scale)
            self.rate = self._persistable("rate", [1], 0.125)
            self.steps = self._persistable("steps", [1], 7, "int64")
            self.tmp = block.create_var(name="tmp", dtype="float32")
            self.pre = block.create_var(name="pre", dtype="float32")
            self.y = block.create_var(name="y", dtype="float32")
            flat = {"x_num_col_dims": 1, "y_num_col_dims": 1}
            block.append_op("mul", {"X": [self.x], "Y": [self.w]}, {"Out": [self.tmp]}, flat)
            sides = {"X": [self.tmp], "Y": [self.b]}
            block.append_op("elementwise_add", sides, {"Out": [self.pre]}, {"axis": 1})
            block.append_op("relu", {"X": [self.pre]}, {"Out": [self.y]})
        self.exe = Executor(CPUPlace())

    def _parameter(self, name, shape, value):
        self._fill(name, shape, value, "float32")
        return self.main.global_block().create_parameter(name=name, shape=shape, dtype="float32")

    def _persistable(self, name, shape, value, dtype="float32"):
        self._fill(name, shape, value, dtype)
        block = self.main.global_block()
        return block.create_var(name=name, shape=shape, dtype=dtype, persistable=True)

    def _fill(self, name, shape, value, dtype):
        block = self.startup.global_block()
        var = block.create_var(name=name, shape=shape, dtype=dtype, persistable=True)
        attrs = {"shape": shape, "dtype": var.dtype, "value": float(value)}
        block.append_op("fill_constant", {}, {"Out": [var]}, attrs)

    def start(self):
        self.exe.run(self.startup)
        return self

    def run(self, program=None, fetch="y"):
        feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
        return self.exe.run(program or self.main, feed=feed, fetch_list=[fetch])[0]
