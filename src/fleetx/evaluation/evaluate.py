"""One evaluation from beginning to end: samples, vectors, the endpoint, comparison, diagnosis.

blocks = compute_blocks(...)         # the model here and the endpoint, in parallel
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

from fleetx.evaluation.compare import Comparison, Tolerances, paired
from fleetx.evaluation.diagnosis import Diagnosis, Identity, diagnose
from fleetx.evaluation.endpoint import Endpoint, EndpointSettings
from fleetx.evaluation.errors import EvaluationError
from fleetx.evaluation.probe import Probe
from fleetx.evaluation.samples import Samples
from fleetx.evaluation.vectors import Block, Task, compute_blocks
from fleetx.evaluation.vectors_file import VectorsWriter, vectors_file
from fleetx.serving.model import ServedModel, load_model

Arrays = dict[str, np.ndarray]

# Samples kept to find the cause of a difference, and the most bytes of their inputs.
_PROBE_ROWS = 64
_PROBE_BYTES = 64 << 20


@dataclass(frozen=True)
class Request:
    """What is to be evaluated, and how."""

    model: Path
    samples: Samples
    endpoint: EndpointSettings | None = None
    out: Path | None = None
    tolerances: Tolerances = field(default_factory=Tolerances)
    jobs: int = 1
    batch: int = 64
    show: int = 10
    previous: Sequence[Path] = ()
    """Other saved models that the endpoint might have."""


@dataclass(frozen=True)
class Result:
    """What an evaluation found."""

    model: str
    version: str
    checksum: str
    samples: int
    seconds: float
    url: str | None = None
    versions: tuple[str, ...] = ()
    """The versions that the endpoint named."""
    checksums: tuple[str, ...] = ()
    comparison: Comparison | None = None
    diagnosis: Diagnosis | None = None

    @property
    def same(self) -> bool:
        """Whether the endpoint answered as the model here does."""
        return self.comparison is None or self.comparison.same

    @property
    def notes(self) -> list[str]:
        """What is worth knowing although the answers agree, a sentence each."""
        others = [each for each in self.checksums if each != self.checksum]
        if not (self.same and others):
            return []
        return [
            f"The endpoint names the checksum {others[0]}, the model here has {self.checksum}: the "
            "files differ, the answers do not."
        ]


def evaluate(
    request: Request,
    *,
    model: ServedModel | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Result:
    """Compute the vectors, write them and compare them as far as `request` asks for it.

    Args:
        request: what to do.
        model: the model of the request, if it is loaded already.
        progress: called with the number of samples of each batch that is done.
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
    """Return how many samples a model takes at a time; not more than 0 if it takes any number."""
    return max(
        (spec.shape[0] for spec in model.inputs if spec.shape and spec.shape[0] > 0), default=0
    )


def _in_steps_of(size: int, request: Request) -> Request:
    """Return the request with batches, and requests to the endpoint, of so many samples."""
    if len(request.samples) % size:
        raise EvaluationError(
            f"the model takes {size} samples at a time, and {len(request.samples)} are no multiple "
            f"of that; choose another number with --limit."
        )
    endpoint = request.endpoint
    if endpoint is not None:
        endpoint = replace(endpoint, request_rows=size)
    return replace(request, batch=size, endpoint=endpoint)


def run_any(model: ServedModel, inputs: Arrays) -> Arrays:
    """Run a model on any number of samples, filled up to what it takes at a time."""
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
    """Collects what the endpoint said."""

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
        """Return who answered."""
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
