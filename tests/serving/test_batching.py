"""Joining requests: answers are those of every request alone, whatever its neighbours are."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from fleetx.serving import RequestError, ServedModel, TensorSpec
from fleetx.serving.batching import Batcher
from fleetx.serving.engines import Engine
from fleetx.serving.independence import why_not_joined
from fleetx.serving.serve_settings import ServeSettings
from fleetx.serving.server_metrics import Metrics
from waiting import LIMIT


class Doubling:
    """Doubles its input and notes how many rows it was given; may be told to wait or to fail."""

    def __init__(self):
        self.calls = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, values):
        self.go.wait(LIMIT)
        (x,) = values
        self.calls.append(len(x))
        if (x < 0).any():
            raise ValueError("a negative number\nand a second line")
        return [x * 2]


def model_of(call, *, inputs=None, outputs=None):
    inputs = inputs or (TensorSpec("x", (-1, -1), "float32"),)
    outputs = outputs or (TensorSpec("y", (-1, -1), "float32"),)
    return ServedModel(Path("made.pt2"), Engine(inputs, outputs, (), call))


def rows(*numbers, width=2):
    return {"x": np.repeat(np.array(numbers, "float32")[:, None], width, 1)}


def together(model, requests, *, max_batch=8, max_delay=0.01, hold=None):
    """Submit requests at once and return their results, errors among them."""

    async def run():
        batcher = Batcher(model, ServeSettings(max_batch=max_batch, max_delay=max_delay), Metrics())
        tasks = [asyncio.ensure_future(batcher.submit(each)) for each in requests]
        await asyncio.sleep(0)  # lets all of them be submitted
        if hold is not None:
            hold.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        batcher.close()
        return results

    return asyncio.run(run())


def test_waiting_requests_are_joined_and_split_again():
    call = Doubling()
    call.go.clear()
    requests = [rows(1), rows(2, 3), rows(4), rows(5, 6, 7)]
    results = together(model_of(call), requests, hold=call)
    for request, result in zip(requests, results, strict=True):
        np.testing.assert_array_equal(result["y"], request["x"] * 2)
    assert call.calls == [1, 6]  # the first found the model free, the others waited for it


def test_no_batch_is_larger_than_allowed():
    call = Doubling()
    call.go.clear()
    together(model_of(call), [rows(*range(3)) for _ in range(5)], max_batch=7, hold=call)
    assert call.calls == [3, 6, 6]


def test_only_equal_shapes_are_joined():
    call = Doubling()
    call.go.clear()
    requests = [rows(1), rows(1, width=3), rows(2), rows(2, width=3), rows(3)]
    results = together(model_of(call), requests, hold=call)
    assert [result["y"].shape[1] for result in results] == [2, 3, 2, 3, 2]
    assert sorted(call.calls) == [1, 2, 2]


def test_neighbours_of_a_bad_request_are_answered():
    call = Doubling()
    call.go.clear()
    requests = [rows(1), rows(2), rows(-1), rows(3)]
    first, second, bad, third = together(model_of(call), requests, hold=call)
    assert [first["y"][0, 0], second["y"][0, 0], third["y"][0, 0]] == [2, 4, 6]
    assert isinstance(bad, RequestError)
    assert bad.status == 500
    assert bad.problem == "the model failed on this request: a negative number"


def test_requests_with_too_many_or_no_rows_are_refused():
    many, none = together(model_of(Doubling()), [rows(*range(9)), rows()], max_batch=8)
    assert many.status == 413
    assert "has 9 rows, more than the 8" in many.problem
    assert none.status == 400
    assert "has no rows" in none.problem


def test_output_that_is_not_one_row_per_row_is_computed_alone():
    hold = Doubling()
    hold.go.clear()

    def call(values):
        hold.go.wait(LIMIT)
        return [values[0].sum(axis=0)]

    requests = [rows(1, 2), rows(3), rows(4, 5)]
    results = together(model_of(call), requests, hold=hold)
    assert [result["y"][0] for result in results] == [3, 3, 9]


def test_client_that_went_away_does_not_stop_the_others():
    async def run():
        call = Doubling()
        call.go.clear()
        batcher = Batcher(model_of(call), ServeSettings(max_batch=8, max_delay=0), Metrics())
        tasks = [asyncio.ensure_future(batcher.submit(rows(n))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        call.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        batcher.close()
        return results

    first, gone, last = asyncio.run(run())
    assert isinstance(gone, asyncio.CancelledError)
    assert [first["y"][0, 0], last["y"][0, 0]] == [0, 4]


def test_requests_one_after_another_never_wait_for_company():
    async def run():
        # An hour: the test would not end if a lone request waited for others.
        batcher = Batcher(
            model_of(Doubling()), ServeSettings(max_batch=8, max_delay=3600), Metrics()
        )
        for number in range(3):
            await batcher.submit(rows(number))
        batcher.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda values: [values[0] * 2], None),
        (lambda values: [values[0] - values[0].mean(axis=0)], "depends on the other rows"),
        (lambda values: [values[0].sum(axis=0, keepdims=True)], "a row for every row"),
    ],
)
def test_models_that_mix_rows_are_found(call, reason):
    found = why_not_joined(model_of(call))
    assert found is None if reason is None else reason in found


def test_declared_shapes_forbid_joining():
    fixed = (TensorSpec("x", (1, 2), "float32"),)
    assert "input 'x' is float32 [1, 2]" in why_not_joined(model_of(Doubling(), inputs=fixed))
    total = (TensorSpec("y", (), "float32"),)
    assert "output 'y'" in why_not_joined(model_of(Doubling(), outputs=total))
