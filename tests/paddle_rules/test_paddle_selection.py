"""The techniques that Paddle would apply: its documented combinations and its quirks."""

import pytest

from fleetx.paddle_rules.selection import longest_chain


@pytest.mark.parametrize(
    ("wanted", "applied"),
    [
        # the ten documented combinations
        ("amp recompute", "amp recompute"),
        ("dgc recompute", "recompute dgc"),
        ("lars recompute", "recompute lars"),
        ("lamb recompute", "recompute lamb"),
        ("amp localsgd", "localsgd amp"),
        ("amp adaptive_localsgd", "adaptive_localsgd amp"),
        ("amp lars", "amp lars"),
        ("amp lamb", "amp lamb"),
        ("amp recompute lars", "amp recompute lars"),
        ("amp recompute lamb", "amp recompute lamb"),
        # conflicts keep the candidate that comes first
        ("amp dgc", "amp"),
        ("amp fp16_allreduce", "amp"),
        ("localsgd adaptive_localsgd", "adaptive_localsgd"),
        ("recompute adaptive_localsgd", "adaptive_localsgd"),
        ("dgc lars", "dgc"),
        ("lamb lars", "lamb"),
        # triples that are shortened
        ("amp recompute localsgd", "amp recompute"),
        ("amp dgc recompute", "amp recompute"),
        ("gradient_merge amp recompute", "gradient_merge amp recompute"),
        ("gradient_merge amp recompute lars", "gradient_merge amp recompute lars"),
        # a chain of four that loses its first member
        ("fp16_allreduce gradient_merge recompute lars", "gradient_merge recompute lars"),
        # pipeline, as in 2.1
        ("amp pipeline recompute", "pipeline amp recompute"),
        ("lars pipeline", "lars"),
        ("", ""),
        ("lars", "lars"),
    ],
)
def test_the_longest_chain(wanted: str, applied: str) -> None:
    assert longest_chain(wanted.split()) == applied.split()
