"""The documents' first program (paddle.fluid): runs on Paddle 1.8.5 and on this project."""

import sys

from loop import serve
from mlp_data import BATCHES

import paddle.fluid as fluid

x = fluid.layers.data(name="x", shape=[32], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=x, size=128, act="tanh")
hidden = fluid.layers.fc(input=hidden, size=128, act="tanh")
prediction = fluid.layers.fc(input=[hidden], size=2, act="softmax")
cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=y))
fluid.optimizer.SGD(learning_rate=0.01).minimize(cost)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
program = fluid.default_main_program()
if "compile" in sys.argv:
    strategy = fluid.BuildStrategy()
    strategy.enable_auto_fusion = True
    program = fluid.CompiledProgram(program, build_strategy=strategy)


def step(i):
    """One training step."""
    return exe.run(program, feed=BATCHES[i % len(BATCHES)], fetch_list=[cost.name])


serve(step, 50)
