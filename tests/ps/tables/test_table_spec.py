"""Specifications: they survive JSON, and wrong ones are refused."""

import json

import pytest

from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    ClipSpec,
    DenseTableSpec,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
    spec_from_dict,
)
from fleetx.ps.tables.usage import check_served

SPARSE = SparseTableSpec(
    name="slots",
    dim=8,
    dtype="float64",
    initializer=InitializerSpec(kind="uniform", settings={"low": -0.1, "high": 0.1}),
    optimizer=OptimizerSpec(kind="adam", rate=0.5, settings={"beta1": 0.8}, l2=0.1),
    entry=EntrySpec(kind="count", value=3),
    eviction=EvictionSpec(max_unseen=7, min_score=0.5, score_decay=0.9, max_bytes=10**9, every=100),
    seed=2**64 - 1,
)
DENSE = DenseTableSpec(
    name="dense",
    blocks=(
        BlockSpec(name="w.block0", parameter="w", shape=(2, 3), settings={"with_decay": False}),
        BlockSpec(name="w.block1", parameter="w", shape=(1, 3), start=6, l2=0.0, clipped=False),
    ),
    optimizer=OptimizerSpec(kind="adamw", clip=ClipSpec(kind="global_norm", limit=1.0)),
)


@pytest.mark.parametrize("spec", [SPARSE, DENSE, SparseTableSpec(name="t", dim=1)])
def test_json_and_back(spec):
    assert spec_from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def change(spec, path, value):
    values = json.loads(json.dumps(spec.to_dict()))
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("spec", "path", "value", "said"),
    [
        (SPARSE, ["kind"], "other", "dense or sparse"),
        (SPARSE, ["kind"], ["sparse"], "dense or sparse"),
        (SPARSE, ["name"], "", "name"),
        (SPARSE, ["dim"], 0, "dim"),
        (SPARSE, ["dim"], "8", "dim"),
        (SPARSE, ["dim"], 1 << 40, "dim"),
        (SPARSE, ["dtype"], "int8", "int8"),
        (SPARSE, ["colour"], 1, "colour"),
        (SPARSE, ["seed"], -1, "seed"),
        (SPARSE, ["initializer"], 5, "InitializerSpec"),
        (SPARSE, ["initializer"], None, "InitializerSpec"),
        (SPARSE, ["optimizer"], None, "OptimizerSpec"),
        (DENSE, ["blocks", 0, "initializer"], None, "InitializerSpec"),
        (DENSE, ["blocks", 0, "parameter"], 7, "name"),
        (DENSE, ["blocks", 0, "clipped"], "yes", "clipped"),
        (SPARSE, ["initializer", "kind"], "golden", "golden"),
        (SPARSE, ["initializer", "settings"], {"low": 2.0}, "low above high"),
        (SPARSE, ["initializer", "settings"], {"middle": 2.0}, "middle"),
        (SPARSE, ["initializer", "settings"], [1], "mapping"),
        (SPARSE, ["optimizer", "kind"], "lamb", "lamb"),
        (SPARSE, ["optimizer", "rate"], "fast", "rate"),
        (SPARSE, ["optimizer", "rate"], float("nan"), "rate"),
        (SPARSE, ["optimizer", "settings"], {"beta1": [1]}, "beta1"),
        (SPARSE, ["entry", "value"], -1, "negative"),
        (SPARSE, ["entry", "kind"], "probability", "between 0 and 1"),
        (SPARSE, ["entry", "kind"], "friend", "friend"),
        (SPARSE, ["eviction", "max_unseen"], 1.5, "max_unseen"),
        (SPARSE, ["eviction", "score_decay"], 2, "score_decay"),
        (SPARSE, ["eviction", "every"], 0, "every"),
        (SPARSE, ["eviction", "every"], -3, "every"),
        (SPARSE, ["eviction", "every"], 1.5, "every"),
        (SPARSE, ["eviction", "every"], True, "every"),
        (SPARSE, ["eviction", "every"], "100", "every"),
        (SPARSE, ["eviction"], {"every": 5}, "every=5 .*: set max_unseen or min_score"),
        (SPARSE, ["eviction"], {"every": 5, "max_bytes": 9}, "set max_unseen or min_score"),
        (SPARSE, ["eviction"], {"every": 5, "score_decay": 0.5}, "set max_unseen or min_score"),
        (DENSE, ["blocks"], 3, "blocks"),
        (DENSE, ["blocks", 0, "shape"], [-1], "shape"),
        (DENSE, ["blocks", 0, "shape"], 4, "BlockSpec"),
        (DENSE, ["blocks", 0, "name"], "w.block1", "two blocks"),
        (DENSE, ["blocks", 0, "start"], -1, "start"),
        (DENSE, ["optimizer", "kind"], "torch.Rprop", "torch.Rprop"),
        (DENSE, ["optimizer", "clip", "limit"], 0.0, "norm"),
        (DENSE, ["optimizer", "clip", "kind"], "hair", "hair"),
        (DENSE, ["optimizer", "clip", "low"], -1.0, "low"),
    ],
)
def test_wrong_values_are_named(spec, path, value, said):
    with pytest.raises(SpecError, match=said):
        spec_from_dict(change(spec, path, value))


def test_a_specification_of_before_has_no_regular_searches():
    values = SPARSE.to_dict()
    assert values["eviction"].pop("every") == 100
    found = spec_from_dict(values).eviction
    assert found == EvictionSpec(max_unseen=7, min_score=0.5, score_decay=0.9, max_bytes=10**9)
    assert found.every is None


@pytest.mark.parametrize(
    "eviction",
    [
        None,
        EvictionSpec(),
        EvictionSpec(max_bytes=10**9),
        EvictionSpec(max_unseen=0, every=1),
        EvictionSpec(min_score=0.5, every=10),
        EvictionSpec(score_decay=0.5, max_bytes=10**9, every=10),
    ],
)
def test_evictions_that_act_on_servers(eviction):
    check_served(SparseTableSpec(name="t", dim=1, eviction=eviction))
    check_served(DENSE)


@pytest.mark.parametrize(
    ("eviction", "named"),
    [
        (EvictionSpec(max_unseen=0), "max_unseen=0"),
        (EvictionSpec(max_unseen=5, max_bytes=10**9), "max_unseen=5"),
        (EvictionSpec(min_score=0.5), r"min_score=0\.5"),
        (EvictionSpec(score_decay=0.5, max_bytes=10**9), r"score_decay=0\.5"),
        (EvictionSpec(max_unseen=5, min_score=2.0), r"max_unseen=5 and min_score=2\.0"),
    ],
)
def test_evictions_that_never_act_on_servers_are_refused(eviction, named):
    sentence = f"^the eviction of table 't' has {named}, .*: set every, "
    with pytest.raises(SpecError, match=sentence):
        check_served(SparseTableSpec(name="t", dim=1, eviction=eviction))


def test_a_seed_comes_from_the_name_and_stays():
    one = SparseTableSpec(name="a", dim=1)
    assert one.row_seed == SparseTableSpec(name="a", dim=4).row_seed
    assert one.row_seed != SparseTableSpec(name="b", dim=1).row_seed
    assert SparseTableSpec(name="a", dim=1, seed=5).row_seed == 5


def test_norms_need_whole_parameters():
    assert OptimizerSpec(kind="lamb").needs_whole_parameters
    assert OptimizerSpec(clip=ClipSpec(kind="norm", limit=1.0)).needs_whole_parameters
    assert not OptimizerSpec(
        kind="adam", clip=ClipSpec(kind="global_norm", limit=1.0)
    ).needs_whole_parameters
