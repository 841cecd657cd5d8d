"""A model of which this worker has some layers: a stage of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetx.fleet.collective.distributed_model import LocalModel
from fleetx.step.train_step import Batches, StageState


class PipelineModel(LocalModel):
    """Trains whole batches; its state is that of all stages."""

    _stages: StageState

    def __init__(self, local: LocalModel, batches: Batches, stages: StageState) -> None:
        super().__init__(local.module)
        self._keep(_batches=batches, _stages=stages)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error: this worker has only some of the layers."""
        raise RuntimeError(
            "the model is a stage of a pipeline, so that this worker cannot run it alone: call "
            "model.train_batch((x, y), optimizer) or model.eval_batch((x, y))."
        )

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of all stages, under the module's own names; all workers must call
        it."""
        state = super().state_dict(*args, **kwargs)
        return type(state)(self._stages.whole_state(state))

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load the part of a state that this stage has."""
        own = self._stages.own_state(state_dict, self.module)
        return super().load_state_dict(own, strict, assign)
