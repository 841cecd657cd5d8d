"""Which generations of workers follow one another, and which steps count."""

from typing import Any

import pytest

from fleetx.launch.elastic_membership import Membership


class Workers:
    """What the workers of a membership were told."""

    def __init__(self, count: int, least: int = 1) -> None:
        self.told: dict[int, list[dict[str, Any]]] = {}
        self.membership = Membership(count, least, self.tell)

    def tell(self, number: int, message: dict[str, Any]) -> None:
        self.told.setdefault(number, []).append(message)

    def last(self, number: int) -> dict[str, Any]:
        return self.told[number][-1]

    def enter(self, *numbers: int, card: str = "same") -> None:
        for number in numbers:
            self.membership.enter(number, ("127.0.0.1", 1000 + number))
            self.membership.ready(number, card)

    def vote(self, *numbers: int, ok: bool = True, position: Any = 0) -> None:
        for number in numbers:
            message = {"generation": self.membership.generation, "ok": ok, "error": "no route"}
            self.membership.vote(number, {**message, "position": position})


@pytest.fixture
def three() -> Workers:
    workers = Workers(3)
    workers.enter(2, 0, 1)
    return workers


def test_first_generation_waits_for_all_workers():
    workers = Workers(3)
    workers.enter(2, 0)
    assert workers.told == {}
    workers.enter(1)
    for number in range(3):
        form = workers.last(number)
        assert (form["type"], form["rank"], form["size"]) == ("form", number, 3)
        assert form["source"] == 0
        assert form["fresh"] == [1, 2]
        assert form["store"] == ["127.0.0.1", 1000]


def test_step_counts_when_all_have_voted(three):
    three.vote(0, 1)
    assert three.last(0)["type"] == "form"
    three.vote(2)
    for number in range(3):
        assert three.last(number)["finished"]
        assert not three.last(number)["regroup"]
    assert three.membership.steps == 1


def test_step_of_a_lost_worker_is_discarded(three):
    three.vote(0, 1, 2)
    three.vote(0)
    three.membership.lose(1)
    assert [m["type"] for m in three.told[0][-2:]] == ["broken", "verdict"]
    assert not three.last(0)["finished"]
    assert three.last(2)["type"] == "broken"
    three.vote(2, ok=False)
    assert not three.last(2)["finished"]
    three.membership.ready(0, "same")
    assert three.membership.generation == 1
    three.membership.ready(2, "same")
    assert [three.last(n)["rank"] for n in (0, 2)] == [0, 1]
    assert three.last(2)["fresh"] == []
    assert three.membership.steps == 1


def test_newcomer_joins_after_a_finished_step(three):
    three.vote(0, 1, 2)
    three.membership.lose(0)
    for number in (1, 2):
        three.membership.ready(number, "same")
    three.enter(0)
    assert three.membership.generation == 2
    three.vote(1, 2)
    assert three.last(1)["regroup"]
    for number in (2, 1):
        three.membership.ready(number, "same")
    form = three.last(0)
    assert (form["generation"], form["size"], form["rank"]) == (3, 3, 0)
    assert (form["source"], form["fresh"], form["steps"]) == (1, [0], 2)


def test_loss_of_a_source_leaves_the_newcomer_without_state(three):
    three.vote(0, 1, 2)
    three.membership.lose(1)
    three.membership.lose(2)
    three.membership.ready(0, "same")
    three.enter(1)
    three.vote(0)
    three.membership.ready(0, "same")
    assert three.last(1)["fresh"] == [1]
    three.membership.lose(0)
    assert "All workers that had the state" in three.membership.problem
    assert three.last(1)["type"] == "refuse"


def test_before_the_first_step_anybody_can_be_the_source(three):
    three.membership.lose(0)
    for number in (1, 2):
        three.membership.ready(number, "same")
    assert three.last(1)["source"] == 0
    assert three.last(2)["fresh"] == [1]
    assert not three.membership.problem


def test_restarted_process_replaces_its_predecessor(three):
    three.enter(1)
    assert three.last(0)["type"] == "broken"
    three.membership.ready(0, "same")
    three.membership.ready(2, "same")
    assert three.membership.generation == 2
    assert three.last(1)["size"] == 3


def test_failures_without_a_lost_worker_end_the_job(three):
    for _ in range(5):
        three.vote(0, 1, 2, ok=False)
        for number in range(3):
            three.membership.ready(number, "same")
    assert "no route" in three.membership.problem
    assert three.last(0)["type"] == "refuse"


def test_votes_of_an_earlier_generation_are_answered_no(three):
    three.membership.lose(1)
    for number in (0, 2):
        three.membership.ready(number, "same")
    three.membership.vote(0, {"generation": 1, "ok": True, "error": "", "position": 0})
    assert (three.last(0)["generation"], three.last(0)["finished"]) == (1, False)


def test_other_model_is_refused(three):
    three.enter(3, card="another")
    assert "trains another model" in three.last(3)["text"]
    three.vote(0, 1, 2)
    assert not three.last(0)["regroup"]


def test_different_positions_end_the_job(three):
    three.vote(0, 1, position=[0, 6])
    three.vote(2, position=[0, 4])
    assert "different positions" in three.membership.problem


def test_newcomer_of_an_ending_job_is_told_so(three):
    three.vote(0, 1, 2)
    three.enter(3)
    three.membership.leave(1)
    assert three.last(3)["type"] == "finished"
    assert three.last(0)["finished"]
    three.enter(4)
    assert three.last(4)["type"] == "finished"
    assert not three.membership.problem


def test_others_go_on_if_one_leaves_early(three):
    three.membership.leave(1)
    three.vote(0)
    assert not three.last(0)["finished"]
    three.membership.ready(0, "same")
    three.membership.ready(2, "same")
    assert [three.last(n)["size"] for n in (0, 2)] == [2, 2]


def test_training_waits_below_the_least_number():
    workers = Workers(3, least=2)
    workers.enter(0, 1, 2)
    workers.vote(0, 1, 2)
    workers.membership.lose(1)
    workers.membership.lose(2)
    workers.membership.ready(0, "same")
    assert workers.membership.generation == 1
    workers.enter(2)
    assert workers.last(0)["size"] == 2
