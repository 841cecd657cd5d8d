"""DataFeeder: samples to tensors of the variables' shape and type, and its errors."""

import numpy as np
import pytest

from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.data_feeder import DataFeeder
from fleetx.static.run.place import CPUPlace


def test_feed_reshapes_and_casts(variable):
    feeder = DataFeeder([variable("x", [-1, 2, 2]), variable("y", [-1, 1], "int64")], CPUPlace())
    feed = feeder.feed([([1, 2, 3, 4], 7), (np.arange(4.0), 8)])
    assert feed["x"].shape() == [2, 2, 2]
    assert feed["x"]._dtype() == VarType.FP32
    assert np.array(feed["y"]).tolist() == [[7], [8]]
    assert feed["x"].lod() == []


def test_sequences_become_rows_with_lengths(variable):
    feeder = DataFeeder([variable("w", [-1, 1], "int64", lod_level=1)], CPUPlace())
    feed = feeder.feed([([1, 2],), ([],), (np.array([5]),)])
    assert np.array(feed["w"]).tolist() == [[1], [2], [5]]
    assert feed["w"].recursive_sequence_lengths() == [[2, 0, 1]]


def test_two_levels_of_sequences(variable):
    feeder = DataFeeder([variable("w", [-1, 3], lod_level=2)])
    feed = feeder.feed([([[[1, 1, 1], [2, 2, 2]], [[3, 3, 3]]],), ([[[4, 4, 4]]],)])
    assert feed["w"].shape() == [4, 3]
    assert feed["w"].recursive_sequence_lengths() == [[2, 1], [2, 1, 1]]


def test_several_unknown_dimensions_keep_the_shape_of_the_samples(variable):
    feeder = DataFeeder([variable("x", [-1, -1, 3])])
    assert feeder.feed([(np.zeros((4, 3)),)] * 2)["x"].shape() == [2, 4, 3]


def test_names_are_looked_up_in_the_program(variable, program):
    variable("x", [-1, 1])
    assert DataFeeder(["x"], CPUPlace()).feed([([1],)])["x"].shape() == [1, 1]
    assert DataFeeder(["x"], CPUPlace(), program).feed_names == ["x"]
    with pytest.raises(ValueError, match="has no variable .zz"):
        DataFeeder(["zz"], CPUPlace())
    with pytest.raises(TypeError, match="Variables or their names, not int"):
        DataFeeder([3], CPUPlace())


def test_errors_name_the_variable(variable):
    feeder = DataFeeder([variable("x", [-1, 2, 2]), variable("w", [-1, 1], "int64", 1)])
    with pytest.raises(ValueError, match=r"'x'.*\(-1, 2, 2\).*\(1, 3\)"):
        feeder.feed([([1, 2, 3], [1])])
    with pytest.raises(AssertionError, match=r"fields in data \(1\).*feed_list\) \(2\)"):
        feeder.feed([([1, 2, 3, 4],)])
    with pytest.raises(ValueError, match="'x' cannot form one float32 array"):
        feeder.feed([([1, 2, 3, 4], [1]), ([1, 2, 3], [1])])
    with pytest.raises(ValueError, match="'x' cannot form one float32 array"):
        feeder.feed([(["a", "b"], [1])])
    with pytest.raises(ValueError, match="'w' has lod_level 1.*level 0 of a sample is 5"):
        feeder.feed([([1, 2, 3, 4], 5)])


def test_feed_parallel_and_decorated_reader(variable):
    feeder = DataFeeder([variable("x", [-1, 1])], CPUPlace())
    batches = [[([i],)] * 2 for i in range(5)]
    feeds = list(feeder.feed_parallel(batches[:2], 2))
    assert [np.array(feed["x"]).ravel().tolist() for feed in feeds] == [[0, 0], [1, 1]]
    with pytest.raises(ValueError, match="2 devices, but 3 mini-batches"):
        list(feeder.feed_parallel(batches[:3], 2))

    def reader():
        yield from batches

    assert len(list(feeder.decorate_reader(reader, multi_devices=False)())) == 5
    assert len(list(feeder.decorate_reader(reader, multi_devices=True, num_places=2)())) == 2
    with pytest.raises(ValueError, match=r"1 mini-batch\(es\) left for 2 devices"):
        list(feeder.decorate_reader(reader, True, num_places=2, drop_last=False)())


def test_number_of_places_follows_cpu_num(variable, monkeypatch):
    feeder = DataFeeder([variable("x", [-1, 1])], CPUPlace())
    monkeypatch.setenv("CPU_NUM", "3")
    assert len(list(feeder.feed_parallel([[([0],)]] * 3))) == 3
    monkeypatch.setenv("CPU_NUM", "many")
    with pytest.raises(ValueError, match="CPU_NUM must be a whole number of at least 1.*'many'"):
        list(feeder.feed_parallel([[([0],)]]))
