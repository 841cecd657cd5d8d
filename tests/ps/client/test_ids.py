"""Ids that an embedding accepts: integers, within the table if its size is declared."""

import pytest
import torch
from torch import nn

import fleetx
from fleetx.fleet.collective.distributed_model import LocalModel
from fleetx.ps.client.embedding import LocalTable, ServedEmbedding
from fleetx.ps.tables.table_spec import OptimizerSpec


@pytest.mark.parametrize(
    "ids",
    [
        torch.tensor([16777217.0]),
        torch.tensor([float("nan")]),
        torch.tensor([1.0], dtype=torch.float64),
        torch.tensor([True]),
        torch.tensor([1], dtype=torch.complex64),
    ],
    ids=str,
)
def test_only_integers_are_ids(ids):
    embedding = fleetx.SparseEmbedding("user", 4)
    for use in (embedding, embedding.prefetch):
        with pytest.raises(TypeError) as refused:
            use(ids)
        for part in ("'user'", str(ids.dtype), ".long()"):
            assert part in str(refused.value)


def test_ids_in_a_list_are_refused_by_name():
    with pytest.raises(TypeError, match=r"the table 'user' .* not by a list: pass torch.as_tensor"):
        fleetx.SparseEmbedding("user", 4)([1, 2])


def test_an_initializer_is_a_name_or_a_spec():
    with pytest.raises(TypeError, match="a name or an InitializerSpec, not {'std': 1.0}"):
        fleetx.SparseEmbedding("user", 4, initializer={"std": 1.0})


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint64], ids=str
)
def test_ids_of_any_integer_type_name_the_same_row(dtype):
    embedding = fleetx.SparseEmbedding("user", 4, padding_idx=3)
    rows = embedding(torch.tensor([[7, 3]], dtype=dtype))
    assert torch.equal(rows, embedding(torch.tensor([[7, 3]])))
    assert rows[0, 0].any()
    assert not rows[0, 1].any()


def test_a_growing_table_takes_any_64_bits():
    embedding = fleetx.SparseEmbedding("user", 4)
    signed = embedding(torch.tensor([-1, -(2**63)]))
    unsigned = embedding(torch.tensor([2**64 - 1, 2**63], dtype=torch.uint64))
    assert torch.equal(signed, unsigned)


@pytest.mark.parametrize("outside", [-1, 5, 2**40])
def test_an_id_outside_a_table_of_rows_is_named(outside):
    embedding = ServedEmbedding("words.weight", nn.Embedding(5, 2), OptimizerSpec())
    embedding.source = LocalTable(embedding.make_spec(None))
    embedding(torch.tensor([0, 4]))
    for use in (embedding, embedding.prefetch):
        with pytest.raises(IndexError) as refused:
            use(torch.tensor([[0, outside]]))
        assert str(refused.value) == (
            f"id {outside} is outside the table 'words.weight', which has 5 rows: ids go from 0 to "
            "4."
        )


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_no_ids_have_no_rows_and_no_gradient(shape):
    embedding = fleetx.SparseEmbedding("user", 4)
    before = embedding(torch.tensor([1]))
    rows = embedding(torch.zeros(shape, dtype=torch.int64))
    assert rows.shape == (*shape, 4)
    rows.sum().backward()
    embedding.apply_gradients(0.1)
    assert torch.equal(embedding(torch.tensor([1])), before)


class Words(nn.Module):
    """Two embeddings, one of them in a module inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Embedding(5, 2))
        self.bag = nn.EmbeddingBag(7, 2)
        self.own = nn.Parameter(torch.zeros(9, 2))

    def forward(self, ids, bags, own=(0,)):
        looked_up = nn.functional.embedding(torch.tensor(own), self.own)
        return self.inner(ids).sum() + self.bag(bags).sum() + looked_up.sum()


@pytest.mark.parametrize(
    ("ids", "bags", "sentence"),
    [
        ([4, 5], [[0]], "id 5 is outside the embedding 'inner.0', which has 5 rows"),
        ([-1], [[0]], "id -1 is outside the embedding 'inner.0', which has 5 rows"),
        ([0], [[0, 9]], "id 9 is outside the embedding 'bag', which has 7 rows"),
    ],
)
def test_an_id_outside_an_embedding_of_a_distributed_model_is_named(ids, bags, sentence):
    model = LocalModel(Words())
    with pytest.raises(IndexError, match=sentence):
        model(torch.tensor(ids), torch.tensor(bags))


def test_an_id_outside_a_parameter_that_is_looked_up_is_named():
    model = LocalModel(Words())
    with pytest.raises(IndexError, match="id 12 is outside the embedding 'own', which has 9 rows"):
        model(torch.tensor([0]), torch.tensor([[0]]), own=(3, 12))


def test_other_errors_of_a_model_stay_as_they_are():
    model = LocalModel(nn.Linear(2, 3))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.zeros(1, 5))


def test_an_empty_batch_of_a_model_is_told():
    model = LocalModel(nn.Linear(2, 3))
    with pytest.warns(UserWarning, match=r"empty \(an argument of the model has the shape \(0, 2"):
        model(torch.zeros(0, 2))
