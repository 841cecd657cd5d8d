"""Which workers train together in an elastic job: a state machine without sockets or clocks.

A job is a sequence of generations, each a fixed list of workers. A step counts once every worker of
the generation has voted for it; only this state machine decides that, so all workers agree on it.
If a worker is lost, the generation is broken: its unfinished step is discarded, and the remaining
workers form the next one as soon as all of them are ready. A new worker is admitted after a
finished step and receives the state from a worker that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

Message = dict[str, Any]
Tell = Callable[[int, Message], None]

_MOST_FAILURES = 5
"""Generations in a row that may fail without a finished step or a lost worker."""


@dataclass(frozen=True)
class JobState:
    """The state of the training that all launchers receive."""

    is_training: bool = False
    """Whether workers train and none has finished."""
    is_ending: bool = False
    """Whether a worker has finished its training."""
    problem: str = ""
    """Why the job cannot go on; empty if it can."""
    workers: tuple[int, ...] = ()
    """The workers that are connected."""
    machines: int = 0
    """The machines with such workers."""

    def to_json(self) -> Message:
        """Return the record as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Message) -> JobState:
        """Read what `to_json` wrote."""
        return cls(**{**record, "workers": tuple(record["workers"])})


@dataclass
class _Worker:
    number: int
    store: tuple[str, int]
    """The address of its key-value store."""
    card: str = ""
    """A checksum of its model and settings."""
    has_state: bool = False
    is_ready: bool = False
    vote: Message | None = None


@dataclass
class Membership:
    """The workers of a job and their current generation; `tell` sends a message to a worker."""

    expected: int
    """Workers of the first generation."""
    least: int
    """The minimum number of machines, below which training waits."""
    tell: Tell = lambda number, message: None
    per_machine: int = 1
    """Workers per machine: those of machine m are numbered from m times this."""
    generation: int = 0
    steps: int = 0
    """Steps that all workers of their generation have finished."""
    is_ending: bool = False
    """Whether a worker has finished its training."""
    problem: str = ""
    """Why the job cannot go on; empty if it can."""
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _members: list[int] = field(default_factory=list)
    _is_broken: bool = False
    _regroups: bool = False
    _failures: int = 0

    @property
    def is_training(self) -> bool:
        """Whether a generation was formed and no worker has finished."""
        return self.generation > 0 and not self.is_ending and not self.problem

    @property
    def state(self) -> JobState:
        """The state of the job for its launchers."""
        workers = tuple(sorted(self._workers))
        machines = self._machines_of(workers)
        return JobState(self.is_training, self.is_ending, self.problem, workers, machines)

    def _machines_of(self, numbers: Iterable[int]) -> int:
        return len({number // self.per_machine for number in numbers})

    @property
    def size(self) -> int:
        """The number of workers in the current generation that are not lost."""
        return sum(number in self._workers for number in self._members)

    def enter(self, number: int, store: tuple[str, int]) -> None:
        """A process of worker `number` has connected."""
        if number in self._workers:  # the previous process has ended or is replaced
            self.lose(number)
        self._workers[number] = _Worker(number, store)
        self._end_newcomers()

    def ready(self, number: int, card: str) -> None:
        """A worker waits for the next generation."""
        worker = self._workers.get(number)
        if worker is None:
            return
        worker.is_ready, worker.card = True, card
        others = [w.card for w in self._workers.values() if w.card and w is not worker]
        if others and card != others[0]:
            self._refuse(
                number,
                f"Worker {number} trains another model, or with another strategy or optimizer, "
                "than the others: start all workers of an elastic job with the same script and "
                "settings.",
            )
            return
        self._end_newcomers()
        self._form_if_complete()

    def vote(self, number: int, message: Message) -> None:
        """A worker has completed its part of a step, or failed to."""
        worker = self._workers.get(number)
        if worker is None:
            return
        if message["generation"] != self.generation or number not in self._members:
            self._answer(number, message["generation"], finished=False)
            return
        worker.vote = message
        if any(n not in self._workers for n in self._members):  # one has finished before
            self._break()
        if not message["ok"] and not self._is_broken:
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                self._give_up(
                    f"{self._failures} exchanges in a row failed although no worker was lost; the "
                    f"last with: {message['error']}"
                )
                return
            self._break()
        if self._is_broken:
            self._answer(number, self.generation, finished=False)
        elif all(self._workers[n].vote is not None for n in self._members):
            self._finish_step()

    def leave(self, number: int) -> None:
        """A worker has finished its training and ends.

        Its generation breaks only if the others continue; usually they end at the same step.
        """
        self.is_ending = True
        self._workers.pop(number, None)
        self._end_newcomers()
        self._form_if_complete()

    def lose(self, number: int) -> None:
        """A worker has died, or is silent."""
        if number in self._members:
            self._failures = 0
        self._remove(number)

    def _remove(self, number: int) -> None:
        if self._workers.pop(number, None) is None:
            return
        if number in self._members:
            self._break()
        is_lost = self.steps > 0 and not any(w.has_state for w in self._workers.values())
        if self.is_training and is_lost:
            self._give_up(
                "All workers that had the state of the training were lost: start the job again "
                "from a checkpoint."
            )
        self._form_if_complete()

    def _finish_step(self) -> None:
        positions = {str(self._workers[n].vote["position"]) for n in self._members}  # type: ignore[index]
        if len(positions) > 1:
            self._give_up(
                "Workers of one step are at different positions of the data: iterate over one "
                "fleet.elastic_loader with the same arguments on all workers."
            )
            return
        self.steps += 1
        self._failures = 0
        self._regroups = self._has_newcomers()
        for number in self._members:
            self._workers[number].has_state = True
            self._workers[number].vote = None
        for number in list(self._members):
            self._answer(number, self.generation, finished=True)

    def _answer(self, number: int, generation: int, *, finished: bool) -> None:
        self.tell(
            number,
            {
                "type": "verdict",
                "generation": generation,
                "finished": finished,
                "regroup": self._regroups or not finished,
            },
        )

    def _has_newcomers(self) -> bool:
        if self.is_ending:
            return False
        return any(w.is_ready and w.number not in self._members for w in self._workers.values())

    def _break(self) -> None:
        """Discard the step of the current generation: its exchanges are aborted."""
        if self._is_broken:
            return
        self._is_broken = self._regroups = True
        for number in self._members:
            worker = self._workers.get(number)
            if worker is not None:
                self.tell(number, {"type": "broken", "generation": self.generation})
                if worker.vote is not None and worker.vote["ok"]:
                    self._answer(number, self.generation, finished=False)

    def _form_if_complete(self) -> None:
        """Start the next generation if all its workers are ready."""
        if self.problem or self.is_ending and not self.size:
            return
        staying = [n for n in self._members if n in self._workers]
        ready = sorted(n for n, w in self._workers.items() if w.is_ready)
        if self.is_ending:
            ready = [n for n in ready if n in staying]
        if self.generation == 0:
            if len(ready) < self.expected:
                return
        elif not self._regroups or not all(self._workers[n].is_ready for n in staying):
            return
        holders = [n for n in ready if self._workers[n].has_state]
        if not ready or not (holders or self.steps == 0):
            return
        if self._machines_of(ready) < self.least and not self.is_ending:
            return
        self._form(ready, holders[0] if holders else ready[0])

    def _form(self, numbers: list[int], source: int) -> None:
        self.generation += 1
        self._members, self._is_broken, self._regroups = numbers, False, False
        store = self._workers[source].store
        fresh = [i for i, n in enumerate(numbers) if not self._workers[n].has_state]
        for rank, number in enumerate(numbers):
            worker = self._workers[number]
            worker.is_ready, worker.vote = False, None
            self.tell(
                number,
                {
                    "type": "form",
                    "generation": self.generation,
                    "rank": rank,
                    "size": len(numbers),
                    "store": list(store),
                    "source": numbers.index(source),
                    "fresh": [rank for rank in fresh if numbers[rank] != source],
                    "steps": self.steps,
                },
            )

    def _end_newcomers(self) -> None:
        if self.is_ending:
            for number in list(self._workers):
                if number not in self._members:
                    self.tell(number, {"type": "finished"})

    def _refuse(self, number: int, reason: str) -> None:
        self.tell(number, {"type": "refuse", "text": reason})
        self._remove(number)

    def _give_up(self, reason: str) -> None:
        self.problem = reason
        for number in list(self._workers):
            self.tell(number, {"type": "refuse", "text": reason})
