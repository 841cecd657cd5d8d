"""The whole evaluation: samples, vectors, the endpoint, comparison, diagnosis.

blocks = compute_blocks(...)         # the local model and the endpoint, in parallel
for block in blocks:
    file.add(block)                  # --out
    comparison.add(block)            # --against
diagnose(comparison, some samples that differ)
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from fleetx.evaluation.comparison import Comparison, Tolerances, paired
from fleetx.evaluation.diagnosis import Diagnosis, Identity, diagnose
from fleetx.evaluation.endpoint import Endpoint, EndpointSettings
from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.probe import Probe
from fleetx.evaluation.samples import Samples
from fleetx.evaluation.vectors import Block, Task, compute_blocks
from fleetx.evaluation.vectors_file import VectorsWriter, vectors_file
from fleetx.serving.model import ServedModel, load_model

Arrays = dict[str, np.ndarray]

# Samples kept for the diagnosis, and the maximum size of their inputs in bytes.
_PROBE_ROWS = 64
_PROBE_BYTES = 64 << 20


@dataclass(frozen=True)
class Request:
    """The settings of an evaluation."""

    model: Path
    samples: Samples
    endpoint: EndpointSettings | None = None
    out: Path | None = None
    tolerances: Tolerances = field(default_factory=Tolerances)
    jobs: int = 1
    batch: int = 64
    show: int = 10
    previous: Sequence[Path] = ()
    """Other saved models that the endpoint might serve."""


@dataclass(frozen=True)
class Result:
    """The result of an evaluation."""

    model: str
    version: str
    checksum: str
    samples: int
    seconds: float
    url: str | None = None
    versions: tuple[str, ...] = ()
    """The versions reported by the endpoint."""
    checksums: tuple[str, ...] = ()
    comparison: Comparison | None = None
    diagnosis: Diagnosis | None = None

    @property
    def same(self) -> bool:
        """Whether the endpoint agrees with the local model."""
        return self.comparison is None or self.comparison.same

    @property
    def notes(self) -> list[str]:
        """Notes that are relevant even if the results agree, one sentence each."""
        others = [each for each in self.checksums if each != self.checksum]
        if not (self.same and others):
            return []
        return [
            f"The endpoint reports checksum {others[0]}, the saved model has {self.checksum}: the "
            "files differ, but the answers agree."
        ]


def evaluate(
    request: Request,
    *,
    model: ServedModel | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Result:
    """Compute, write and compare the vectors, as far as requested.

    Args:
        request: the settings.
        model: the model of the request, if it is already loaded.
        progress: called with the number of samples of each completed batch.
    """
    begin = time.monotonic()
    model = model or load_model(request.model)
    size = fixed_rows(model)
    if size > 0:
        request = _in_steps_of(size, request)
    answers = None if request.endpoint is None else _Answers(request)
    task = Task(request.model, request.samples, request.endpoint)
    with contextlib.ExitStack() as stack:
        writer = _writer(stack, request, model)
        for block in compute_blocks(task, jobs=request.jobs, batch=request.batch, model=model):
            if writer is not None:
                writer.add(block.ids, block.expected)
            if answers is not None:
                answers.add(block)
            progress(len(block.ids))
    result = Result(
        model=str(request.model),
        version=model.version,
        checksum=model.checksum,
        samples=len(request.samples),
        seconds=time.monotonic() - begin,
    )
    if answers is None:
        return result
    identity = answers.identity(model, request.previous)
    return replace(
        result,
        url=answers.url,
        versions=identity.versions,
        checksums=tuple(identity.answered),
        comparison=answers.comparison,
        diagnosis=diagnose(answers.comparison, answers.probe(request, model), identity),
    )


def fixed_rows(model: ServedModel) -> int:
    """Return the fixed batch size of a model; 0 or less if it accepts any number of samples."""
    return max(
        (spec.shape[0] for spec in model.inputs if spec.shape and spec.shape[0] > 0), default=0
    )


def _in_steps_of(size: int, request: Request) -> Request:
    """Return the request with batches, and requests to the endpoint, of this size."""
    if len(request.samples) % size:
        raise EvaluationError(
            f"the model takes {size} samples at a time, but {len(request.samples)} is not a "
            "multiple of it; choose another number with --limit."
        )
    endpoint = request.endpoint
    if endpoint is not None:
        endpoint = replace(endpoint, request_rows=size)
    return replace(request, batch=size, endpoint=endpoint)


def run_any(model: ServedModel, inputs: Arrays) -> Arrays:
    """Run a model on any number of samples, padded to its batch size."""
    size = fixed_rows(model)
    if size <= 0:
        return model.run(inputs)
    count = len(next(iter(inputs.values())))
    parts = []
    for at in range(0, count, size):
        rows = np.minimum(np.arange(at, at + size), count - 1)
        parts.append(model.run({name: array[rows] for name, array in inputs.items()}))
    return {name: np.concatenate([part[name] for part in parts])[:count] for name in parts[0]}


def _writer(
    stack: contextlib.ExitStack, request: Request, model: ServedModel
) -> VectorsWriter | None:
    if request.out is None:
        return None
    metadata = {
        "format": "fleetx evaluation vectors",
        "model": str(request.model),
        "version": model.version,
        "checksum": model.checksum,
    }
    samples = request.samples
    file = vectors_file(request.out, len(samples), samples.id_width, metadata)
    return stack.enter_context(file)


class _Answers:
    """Collector of the endpoint's responses."""

    def __init__(self, request: Request) -> None:
        assert request.endpoint is not None
        self.comparison = Comparison(request.tolerances, show=request.show)
        self._rows = request.endpoint.request_rows
        with Endpoint(request.endpoint) as endpoint:
            self.url = endpoint.url
        self._checksums: Counter[str] = Counter()
        self._versions: Counter[str] = Counter()
        self._kept: tuple[int, list[str], Arrays, Arrays, np.ndarray] | None = None

    def add(self, block: Block) -> None:
        """Compare a block, request by request."""
        for number, answer in enumerate(block.answers):
            at = number * self._rows
            ids = block.ids[at : at + self._rows]
            expected = {name: rows[at : at + self._rows] for name, rows in block.expected.items()}
            if answer.checksum is not None:
                self._checksums[answer.checksum] += len(ids)
            if answer.version is not None:
                self._versions[answer.version] += len(ids)
            differing = self.comparison.add(ids, expected, answer.outputs)
            if self._kept is None and differing.any() and not self.comparison.problems:
                actual = paired(expected, answer.outputs, lambda _: None)
                self._kept = (block.start + at, ids, expected, actual, differing)

    def identity(self, model: ServedModel, previous: Sequence[Path]) -> Identity:
        """Return the identity of the model that responded."""
        known: Mapping[str, Callable[[Arrays], Arrays]] = {
            str(path): partial(run_any, load_model(path))
            for path in previous
            if not self.comparison.same
        }
        versions = tuple(version for version, _ in self._versions.most_common(3))
        return Identity(model.checksum, dict(self._checksums), versions, known)

    def probe(self, request: Request, model: ServedModel) -> Probe | None:
        """Return the first samples that differ, with their neighbours in the same request."""
        if self._kept is None:
            return None
        start, ids, expected, actual, differing = self._kept
        row = {
            name: array[0].nbytes for name, array in request.samples.read(start, start + 1).items()
        }
        most = max(4, min(_PROBE_ROWS, _PROBE_BYTES // max(1, sum(row.values()))))
        first = max(0, min(int(np.argmax(differing)), len(ids) - most))
        rows = slice(first, first + most)
        count = len(ids[rows])
        begin = start + first
        return Probe(
            ids=ids[rows],
            inputs=request.samples.read(begin, begin + count),
            expected={name: array[rows] for name, array in expected.items()},
            actual={name: array[rows] for name, array in actual.items()},
            differing=differing[rows],
            tolerances=request.tolerances,
            run=partial(run_any, model),
            variants=lambda: request.samples.variants(begin, begin + count),
        )
