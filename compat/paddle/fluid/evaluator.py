"""Metrics whose sums are variables of the program."""

from fleetx.static.metrics.evaluators import ChunkEvaluator, EditDistance, Evaluator

__all__ = ["ChunkEvaluator", "EditDistance", "Evaluator"]
