"""Diagnosis of a difference: a shifted output, swapped channels, an old model, ...

The endpoint's own statements come first, then the patterns in its results, then the results of the
local model on modified inputs. An explanation is given only if it reproduces the results; otherwise
the text says that it is a guess, or that the cause is unknown.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fleetx.evaluation.comparison import Comparison
from fleetx.evaluation.input_faults import PREPROCESSING, Candidate, fitted_scale, input_changes
from fleetx.evaluation.output_faults import OUTPUT_FAULTS
from fleetx.evaluation.probe import Arrays, Finding, Probe

VERSION = "another model version"
UNKNOWN = "unknown"

# This many samples rule out most candidates.
_SCREEN = 4
# An explanation of this fraction of the difference is reported as a guess.
_MUCH = 0.8


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a difference, and the facts it is based on."""

    kind: str
    sentence: str
    notes: list[str] = field(default_factory=list)
    """Further findings, one sentence each."""


@dataclass(frozen=True)
class Identity:
    """The identity of the model that responded."""

    checksum: str
    """The checksum of the local model."""
    answered: Mapping[str, int]
    """The number of samples per checksum reported by the endpoint."""
    versions: tuple[str, ...] = ()
    """The versions reported by the endpoint."""
    previous: Mapping[str, Callable[[Arrays], Arrays]] = field(default_factory=dict)
    """Other saved models that the endpoint might serve, by path."""

    @property
    def others(self) -> list[str]:
        """The reported checksums that differ from that of the local model."""
        return [each for each in self.answered if each != self.checksum]


def diagnose(
    comparison: Comparison, probe: Probe | None, identity: Identity, *, seconds: float = 60.0
) -> Diagnosis | None:
    """Return a diagnosis of the differences; None if there are none."""
    if comparison.same:
        return None
    if comparison.problems or probe is None:
        return Diagnosis(
            "form of the answer",
            f"It looks like another model or another interface: {comparison.problems[0]}",
            comparison.problems[1:],
        )
    deadline = time.monotonic() + seconds
    with np.errstate(all="ignore"):
        finding, notes = _search(comparison, probe, identity, lambda: time.monotonic() < deadline)
    notes += _extent(comparison)
    return Diagnosis(finding.kind, f"It looks like {finding.sentence}", notes)


def _search(
    comparison: Comparison, probe: Probe, identity: Identity, in_time: Callable[[], bool]
) -> tuple[Finding, list[str]]:
    notes: list[str] = []
    found = _previous(probe, identity)
    if found:
        return found, notes
    found, near = _explained(comparison, probe, in_time)
    if identity.others:
        if found:
            notes.append(f"Its answers look like {found.sentence}")
        return _other_checksum(identity), notes
    if identity.answered:
        notes.append("The endpoint reports the checksum of the saved model.")
    if not in_time():
        notes.append("The search was stopped by its time limit.")
    return found or near or _guess(comparison, identity), notes


def _explained(
    comparison: Comparison, probe: Probe, in_time: Callable[[], bool]
) -> tuple[Finding | None, Finding | None]:
    """Return the finding that reproduces the results, or else the one that comes closest."""
    found, near = None, None
    for fault in OUTPUT_FAULTS:
        found = found or fault(probe, comparison)
    if not found:
        found, near = _inputs(probe, in_time)
        found = found or fitted_scale(probe.first(_SCREEN), in_time)
    return _introduced(found), _introduced(near)


def _introduced(found: Finding | None) -> Finding | None:
    if found is None:
        return None
    return Finding(found.kind, f"{_BEGINNINGS[found.kind]}: {found.sentence}")


_BEGINNINGS = {
    "constant answers": "an endpoint that ignores its inputs",
    "batch order": "a mix-up of the samples of a request",
    "permuted outputs": "another order of the outputs",
    "shifted outputs": "a change of single outputs",
    "precision": "lower precision",
    "activation": "another last step",
    "scaled outputs": "another scale of the outputs",
    "channel order": "swapped channels",
    "preprocessing": "another preprocessing",
    "layout of the input": "another layout of the input",
}


def _previous(probe: Probe, identity: Identity) -> Finding | None:
    for path, run in identity.previous.items():
        if probe.explained_by(run(probe.inputs)):
            return Finding(
                VERSION, f"another model version: {path} gives exactly the endpoint's answers."
            )
    return None


def _other_checksum(identity: Identity) -> Finding:
    (first, *_), here = identity.others, identity.answered.get(identity.checksum, 0)
    named = f" (version {', '.join(identity.versions)})" if identity.versions else ""
    if here:
        return Finding(
            VERSION,
            f"another model version on some replicas: {here} samples were answered by this model, "
            f"{sum(identity.answered.values()) - here} by one with checksum {first}{named}.",
        )
    return Finding(
        VERSION,
        f"another model version: the endpoint reports checksum {first}{named}, the saved model "
        f"has {identity.checksum}.",
    )


def _inputs(probe: Probe, in_time: Callable[[], bool]) -> tuple[Finding | None, Finding | None]:
    """Return the input change that explains the results, or else the one that comes closest."""
    few = probe.first(_SCREEN)
    best = few.before
    nearest: Candidate | None = None

    def explains(candidate: Candidate) -> bool:
        nonlocal best, nearest
        found = few.run(candidate.apply(few.inputs))
        distance = few.distance(found)
        if distance < best:
            best, nearest = distance, candidate
        return few.explained_by(found) and probe.explained_by(
            probe.run(candidate.apply(probe.inputs))
        )

    for candidate in itertools.chain(input_changes(probe.inputs), _prepared(probe)):
        if not in_time():
            break
        if explains(candidate):
            return _because(candidate), None
    return None, _nearest(nearest, 1 - best / few.before)


def _prepared(probe: Probe) -> Iterator[Candidate]:
    """Yield other kinds of preprocessing as candidates."""
    for words, inputs in probe.variants():

        def choose(wanted: Arrays, inputs: Arrays = inputs) -> Arrays:
            (count,) = {len(array) for array in wanted.values()}
            rows = slice(None) if count == len(probe.ids) else probe.rows[:count]
            return {name: array[rows] for name, array in inputs.items()}

        yield Candidate(PREPROCESSING, words, choose)


def _nearest(candidate: Candidate | None, gone: float) -> Finding | None:
    """Return a candidate that explains much but not all, such as another image decoder."""
    if candidate is None or gone < _MUCH:
        return None
    return Finding(
        candidate.kind,
        f"as a guess, the endpoint seems to {candidate.words}: with its inputs changed in this "
        f"way, {gone:.0%} of the mean difference disappears; details may differ.",
    )


def _because(candidate: Candidate) -> Finding:
    return Finding(
        candidate.kind,
        f"the endpoint seems to {candidate.words}: with its inputs changed in this way, the saved "
        "model gives the endpoint's answers.",
    )


def _guess(comparison: Comparison, identity: Identity) -> Finding:
    """Return a finding for differences that nothing explains."""
    worst = min(comparison.outputs.values(), key=lambda each: each.cosine_mean)
    correlation, _, _ = worst.line()
    everywhere = comparison.differing_rows > 0.9 * comparison.rows
    spread = worst.place_differing.size and (worst.place_differing > 0).mean() > 0.5
    if worst.not_finite:
        return Finding(
            UNKNOWN,
            f"nothing known: {worst.not_finite} numbers of output {worst.name!r} are not finite on "
            "one side.",
        )
    if worst.cosine_min > 0.9999 and worst.max_relative < 0.02:
        return Finding(
            "precision",
            "lower precision in the computation (half precision, tf32, quantised weights), as a "
            f"guess: all differences are small (up to {worst.max_relative:.1e} of the largest "
            f"number) and vectors point the same way (cosine at least {worst.cosine_min:.6f}).",
        )
    if everywhere and spread and correlation > 0.3 and not identity.answered:
        return Finding(
            VERSION,
            "another model version with other weights, as a guess: differences are spread over all "
            "samples and outputs, answers still correlate with the vectors "
            f"({correlation:.2f}), and no tried change of inputs or outputs explains them.",
        )
    return Finding(
        UNKNOWN,
        f"nothing known: no tried change of inputs or outputs explains the answers (correlation "
        f"{correlation:.2f}, largest difference {worst.max:.3g} in output {worst.name!r}).",
    )


def _extent(comparison: Comparison) -> list[str]:
    part = comparison.differing_rows
    if part >= comparison.rows:
        return []
    return [
        f"{part} of {comparison.rows} samples differ; if it is not their content, perhaps one of "
        "several replicas answers differently."
    ]
