"""The common part of click-through-rate models: Criteo's inputs, the loss, AUC, and file readers.

A sample has 13 numbers, 26 slots with one id each, and a label: whether there was a click. As
programs, models take `dense_input` [N, 13], `C1` … `C26` [N, 1] and `label` [N, 1]; as modules,
they take the numbers [N, 13] and all ids [N, 26] and return scores [N], whose loss is
`F.binary_cross_entropy_with_logits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetx.applications.named_targets import Targets
from fleetx.applications.reading import worker_share
from fleetx.applications.table_model import TableModel
from fleetx.data import criteo
from fleetx.data.text_lines import Files
from fleetx.static import layers
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Uniform
from fleetx.static.layers.io import static_data
from fleetx.static.readers.generator_loader import GeneratorLoader

ROW_BOUND = 0.01
"""The maximum initial value of rows."""


@dataclass(frozen=True, kw_only=True)
class CriteoSizes:
    """The sizes of a click-through-rate model."""

    ids: int = criteo.SPARSE_FEATURE_DIM
    """The number of rows of the table of ids."""
    row: int = 10
    """The length of a row."""
    dense: int = criteo.DENSE
    """The number of dense features of a sample."""
    slots: int = criteo.SPARSE
    """The number of slots of a sample."""
    hidden: tuple[int, ...] = (400, 400, 400)
    """The widths of the hidden layers."""


class CriteoModel(TableModel[CriteoSizes]):
    """A static click-through-rate model."""

    default_sizes = CriteoSizes

    def build(self) -> None:
        """Add the network to the default programs."""
        dense = static_data("dense_input", [None, self.sizes.dense], "float32")
        slots = [
            static_data(f"C{number}", [None, 1], "int64")
            for number in range(1, self.sizes.slots + 1)
        ]
        label = static_data("label", [None, 1], "int64")
        self.inputs = [dense, *slots, label]
        # One lookup for all slots: one request to each server.
        self._judge(self.scores(dense, layers.concat(slots, axis=1)), label)

    def scores(self, dense: Variable, ids: Variable) -> Variable:
        """Add the network; return scores [N, 1] of numbers and ids, and set `weights`."""
        raise NotImplementedError(f"{type(self).__name__} does not define scores().")

    def rows_of(self, name: str, ids: Variable, dim: int) -> Variable:
        """Return rows of a table by their ids."""
        return self.rows(name, ids, [self.sizes.ids, dim], Uniform(-ROW_BOUND, ROW_BOUND))

    def _judge(self, scores: Variable, label: Variable) -> None:
        costs = layers.sigmoid_cross_entropy_with_logits(scores, layers.cast(label, "float32"))
        self.loss = layers.mean(costs)
        clicked = layers.sigmoid(scores)
        chances = layers.concat([layers.scale(clicked, -1.0, bias=1.0), clicked], axis=1)
        self.predict = chances
        auc, batch_auc, _ = layers.auc(chances, label)
        self.target = Targets({"auc": auc, "batch_auc": batch_auc})
        self.checkpoints = [scores.name]

    def load_criteo_from_file(
        self,
        train_files_path: Files,
        sparse_feature_dim: int | None = None,
        batch_size: int = 1000,
        shuffle: bool = True,
    ) -> GeneratorLoader:
        """Return a loader of Criteo's lines: label, 13 numbers, 26 categories; tab-separated.

        Args:
            train_files_path: a file, a folder, or a list of them.
            sparse_feature_dim: the number of rows that categories are hashed to; default: all.
            batch_size: lines per batch.
            shuffle: shuffle the lines, differently in every pass.
        """
        sizes = self.sizes
        rows = sizes.ids if sparse_feature_dim is None else sparse_feature_dim
        if rows > sizes.ids:
            raise ValueError(
                f"sparse_feature_dim={rows} is more than the {sizes.ids} rows of the model: create "
                f"it with CriteoSizes(ids={rows})."
            )
        if (sizes.dense, sizes.slots) != (criteo.DENSE, criteo.SPARSE):
            raise ValueError(
                f"Criteo's lines have {criteo.DENSE} numbers and {criteo.SPARSE} slots, the model "
                f"has {sizes.dense} and {sizes.slots}."
            )
        samples = criteo.reader(
            train_files_path, sparse_feature_dim=rows, shuffle=shuffle, shard=worker_share()
        )
        return self.sample_loader(samples, batch_size)
