"""What one worker has of a plan: parameters, gradients, state and activations, and its operations.

It follows from the model and the degrees alone, so that `auto` can ask for it on workers of which
neither links nor speed are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetx.fleet.planning.model_figures import ModelFigures, ModuleFigures
from fleetx.fleet.planning.plan import Plan
from fleetx.techniques.pipeline_stages import first_layers


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that a worker holds at the peak of a step."""

    parameters: float
    gradients: float
    state: float
    activations: float
    gathered: float
    """Gathered blocks of sharding stage 3, during their computation."""

    @property
    def total(self) -> float:
        """All of it."""
        held = self.parameters + self.gradients + self.state
        return held + self.activations + self.gathered


def memory_of(plan: Plan, figures: ModelFigures, copies: int) -> Memory:
    """Return what a worker holds, for an optimizer with `copies` state tensors per parameter."""
    layers, shards = layer_bytes(plan, figures), plan.degrees.sharding
    return Memory(
        parameters=layers / (shards if plan.stage == 3 else 1),
        gradients=layers / (shards if plan.stage >= 2 else 1),
        state=layers * copies / (shards if plan.stage else 1),
        activations=_activations(plan, figures) * plan.batches,
        gathered=_gathered(plan, figures),
    )


def layer_bytes(plan: Plan, figures: ModelFigures) -> float:
    """Return the bytes of the parameters that a worker computes with."""
    element = figures.sizes.element_bytes
    whole = figures.sizes.parameter_bytes
    divided = figures.divided_elements * element
    layers = whole - divided * (1 - 1 / plan.degrees.mp)
    if plan.degrees.pp > 1:
        layers *= max(_stage_elements(plan, figures)) * element / max(1, whole)
    return layers


def _stage_elements(plan: Plan, figures: ModelFigures) -> list[int]:
    return [sum(layer.elements for layer in stage) for stage in _stages(plan, figures)]


def stage_shares(plan: Plan, figures: ModelFigures) -> list[float]:
    """Return the share of each stage in the operations of a model; stages have about equally many
    parameters, but not all of these compute as much."""
    if plan.degrees.pp == 1:
        return [1.0]
    found = [sum(layer.operations for layer in stage) for stage in _stages(plan, figures)]
    total = sum(found)
    return [each / total if total else 1 / len(found) for each in found]


def _stages(plan: Plan, figures: ModelFigures) -> list[list[ModuleFigures]]:
    layers = list(figures.layers.values())
    begins = first_layers(figures.layer_modules, plan.degrees.pp, ())
    ends = [*begins[1:], len(layers)]
    return [layers[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _activations(plan: Plan, figures: ModelFigures) -> float:
    """Return the bytes that are saved for the backward pass of one worker's samples."""
    # Of a pipeline, the first stage has the most micro-batches in flight.
    micro, stages = plan.micro_batches, plan.degrees.pp
    in_flight = min(stages, micro) / micro / stages
    if plan.recompute and figures.blocks:
        blocks = figures.blocks.values()
        outside = figures.saved - sum(block.saved for block in blocks)
        kept = sum(block.entering for block in blocks)
        return (outside + kept) * in_flight + max(block.saved for block in blocks) / micro
    return figures.saved * in_flight


def _gathered(plan: Plan, figures: ModelFigures) -> float:
    """Return the bytes of whole blocks: one that computes, the next one, and gradients."""
    if plan.stage != 3:
        return 0.0
    blocks = figures.blocks.values()
    largest = max((block.elements for block in blocks), default=0)
    inside = sum(block.elements for block in blocks)
    rest = sum(figures.sizes.elements) - inside  # gathered by the model itself
    share = layer_bytes(plan, figures) / max(1, figures.sizes.parameter_bytes)
    return (rest + 3 * largest) * figures.sizes.element_bytes * share
