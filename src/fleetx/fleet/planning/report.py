"""The text of `fleetx plan`: a table of plans, the best one as a strategy, and where the figures
come from."""

from __future__ import annotations

from fleetx.fleet.planning.cluster import Cluster
from fleetx.fleet.planning.costs import Costs, costs_of
from fleetx.fleet.planning.model_figures import ModelFigures
from fleetx.fleet.planning.plan import Plan, plans
from fleetx.step.text_table import draw, size


def ranked(figures: ModelFigures, cluster: Cluster, copies: int) -> list[tuple[Plan, Costs]]:
    """Return all plans with their costs: first those that fit, fastest first; then the others, by
    memory.
    """
    every = plans(figures, cluster.workers, cluster.per_machine)
    found = [(plan, costs_of(plan, figures, cluster, copies)) for plan in every]

    def place(each: tuple[Plan, Costs]) -> tuple[bool, float, float]:
        costs = each[1]
        fits = costs.memory <= cluster.memory
        return not fits, -costs.samples_per_second if fits else costs.memory, costs.memory

    return sorted(found, key=place)


def report(figures: ModelFigures, cluster: Cluster, copies: int, count: int) -> str:
    """Return the table of the first plans, the strategy of the best, and how it was found."""
    found = ranked(figures, cluster, copies)
    fitting = [each for each in found if each[1].memory <= cluster.memory]
    shown = found[:count]
    rows = [_row(plan, costs, cluster) for plan, costs in shown]
    headings = ("plan", "memory", "between", "inside", "step", "samples/s")
    title = f"{cluster.workers} workers, {len(fitting)} of {len(found)} plans fit"
    table = draw(title, headings, rows, right=headings[1:])
    return "\n".join([table, *_best(figures, cluster, found[0]), *_origin(figures, cluster)])


def _row(plan: Plan, costs: Costs, cluster: Cluster) -> tuple[str, ...]:
    over = costs.memory > cluster.memory
    return (
        plan.name,
        f"{size(costs.memory)}{' (too much)' if over else ''}",
        size(costs.between) if costs.between else "-",
        size(costs.inside) if costs.inside else "-",
        _time(costs.seconds),
        f"{costs.samples_per_second:.4g}",
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _best(figures: ModelFigures, cluster: Cluster, best: tuple[Plan, Costs]) -> list[str]:
    plan, costs = best
    if costs.memory > cluster.memory:
        return [
            f"No plan fits into {size(cluster.memory)}: {plan.name} needs the least memory, "
            f"{size(costs.memory)}. Use more workers, or a smaller batch.",
            "",
        ]
    settings = plan.settings(figures)
    lines = [f"strategy.{name} = {value!r}" for name, value in settings.items()]
    held = (
        f"a worker has {size(costs.held.parameters)} of parameters, {size(costs.held.gradients)} "
        f"of gradients, {size(costs.held.state)} of optimizer state, "
        f"{size(costs.held.activations)} of activations and {size(costs.held.gathered)} of "
        "gathered blocks."
    )
    return [f"The fastest that fits, {plan.name}: {held}", "", *lines, *([""] if lines else [])]


def _origin(figures: ModelFigures, cluster: Cluster) -> list[str]:
    elements = sum(figures.sizes.elements)
    is_cpu = cluster.device == "cpu"
    waited = (
        "- gradients overlap with backward as far as cores only wait for the link; gathered "
        "blocks, broadcasts of owners and activations do not overlap;"
        if is_cpu
        else "- gradients overlap with backward, gathered blocks with the computation of others; "
        "broadcasts of owners and activations do not overlap;"
    )
    headers = f", of which headers of TCP leave {size(cluster.payload_rate)}/s" if is_cpu else ""
    return [
        "How these figures were found",
        f"- the model was run on meta tensors: {elements:,} trainable parameters, "
        f"{figures.operations / 1e9:.4g} billion operations and {size(figures.saved)} of "
        f"activations for {figures.samples} samples of one worker;",
        f"- compute: operations / {cluster.flops / 1e9:.4g} billion per second; recompute adds a "
        "forward pass, a pipeline the idle time of its stages, of which the largest counts;",
        f"- bytes: rings; {size(cluster.bandwidth)}/s of a machine's link{headers} are shared by "
        f"the rings that leave it, {size(cluster.inside)}/s is what a worker has inside;",
        waited,
        "- activations of divided layers are counted as whole ones, which overestimates memory; "
        "the time of the update is ignored.",
    ]
