"""FetchHandler: values of a scope, and of a run over a dataset, seen from another thread."""

import threading

import numpy as np
import pytest

from fleetx.static import layers
from fleetx.static.graph.default_programs import default_main_program, program_guard
from fleetx.static.graph.program import Program
from fleetx.static.layers.io import static_data
from fleetx.static.run.executor import Executor
from fleetx.static.run.fetch_handler import FetchHandler, FetchHandlerMonitor
from fleetx.static.run.scope import Scope
from waiting import LIMIT


class Collecting(FetchHandler):
    def __init__(self, var_dict):
        super().__init__(var_dict, period_secs=0.01)
        self.seen = []
        self.called = threading.Event()

    def handler(self, res_dict):
        self.seen.append(res_dict)
        self.called.set()


def test_values_of_a_scope(caplog):
    block = Program().global_block()
    here = block.create_var(name="here", shape=[2], dtype="float32")
    away = block.create_var(name="away", shape=[2], dtype="float32")
    scope = Scope()
    scope.var("here").get_tensor().set(np.array([1.0, 2.0], "float32"))
    handler = Collecting({"a": here, "b": away, "c": None})
    monitor = FetchHandlerMonitor(scope, handler)
    monitor.start()
    assert handler.called.wait(LIMIT)
    monitor.stop()
    assert handler.seen[0]["a"].tolist() == [1, 2]
    assert handler.seen[0]["b"] is handler.seen[0]["c"] is None
    assert "c of var_dict is not a Variable" in caplog.text
    assert "variable b has no value yet" in caplog.text


def test_a_handler_needs_variables(capsys):
    with pytest.raises(AssertionError, match="needs var_dict"):
        FetchHandler()
    FetchHandler.help()
    FetchHandler({}).handler({"loss": np.array([3.0]), "none": None})
    assert "loss[0]: 3.0" in capsys.readouterr().out


def test_values_of_a_run_over_a_dataset():
    with program_guard(Program(), Program()):
        x = static_data("x", [None, 1])
        double = layers.scale(x, 2.0)
        handler = Collecting({"double": double})

        def batches():
            yield {"x": np.full((2, 1), 3, "float32")}
            assert handler.called.wait(LIMIT)  # a call before anything ran is possible
            handler.called.clear()
            yield {"x": np.full((2, 1), 3, "float32")}
            assert handler.called.wait(LIMIT)

        Executor().train_from_dataset(
            default_main_program(), batches(), scope=Scope(), fetch_handler=handler
        )
    assert handler.seen[-1]["double"].tolist() == [[6], [6]]
