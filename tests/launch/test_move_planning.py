"""Launchers agree on servers that take over: invalid offers are rejected, and the job continues."""

import pytest

from fleetx.launch.devices import Devices
from fleetx.launch.group import Group
from fleetx.launch.job_layout import Cluster, Node, Site
from fleetx.launch.job_plan import JobPlan
from fleetx.launch.link import Link, Rules
from fleetx.launch.move_planning import Invitation, MovePlanning, offer, share_of
from fleetx.launch.server_moves import ServerMoves
from fleetx.launch.server_processes import ServerProcesses
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout, mark_ready

NODES = (
    Node("127.0.0.1", (), (), ("127.0.0.1:6170",)),
    Node("127.0.0.2", ("127.0.0.2:6171",), ("0",), ("127.0.0.2:6170",)),
    Node("127.0.0.3", ("127.0.0.3:6171",), ("0",)),
)
SERVERS = ("127.0.0.1:6170", "127.0.0.2:6170")


def cluster(this=0):
    return Cluster(NODES, this, ("127.0.0.1", 6180))


@pytest.fixture
def files(tmp_path):
    found = LayoutFolder(tmp_path)
    found.write(ServerLayout(0, SERVERS, 2, 2))
    return found


def test_servers_are_divided_among_the_machines_that_have_some():
    for count, shares in ((1, [1, 0, 0]), (2, [1, 1, 0]), (5, [3, 2, 0])):
        assert [share_of(machine, count, cluster()) for machine in range(3)] == shares


def test_a_plan_is_made_of_all_offers(files):
    planning = MovePlanning(files, cluster())
    assert planning.invite() is None
    files.ask_for(3)
    asked = planning.invite()
    assert planning.invite() is None
    told = Invitation.from_note(asked.to_note())
    assert told == asked
    for machine in (2, 0):
        planning.hear(machine, offer(told, files, cluster(machine)))
    assert planning.layout() is None
    planning.hear(1, offer(told, files, cluster(1)))
    layout = planning.layout()
    hosts = [endpoint.rpartition(":")[0] for endpoint in layout.endpoints]
    assert hosts == ["127.0.0.1", "127.0.0.1", "127.0.0.2"]
    planning.publish()
    assert files.read_plan() is None
    assert files.wanted() == 3  # a launcher that is killed now finds it again
    for server in range(3):
        mark_ready(files.handover(1), server)
    planning.publish()
    assert files.read_plan() == layout
    assert files.wanted() is None


def test_machines_that_do_not_share_the_folder_are_named(files, tmp_path):
    planning = MovePlanning(files, cluster())
    files.ask_for(3)
    asked = planning.invite()
    other = LayoutFolder(tmp_path / "other")
    answer = offer(asked, other, cluster(1))
    assert answer["endpoints"] == []
    planning.hear(1, answer)
    assert files.refusal().startswith(
        f"Tables do not move to 3 server(s): 127.0.0.2 does not see {tmp_path}; --server_state must"
    )
    assert planning.layout() is None
    assert files.wanted() is None
    assert {path.name for path in tmp_path.iterdir()} <= {
        *("layout.json", "refusal.json", ".layout.lock")
    }


def test_a_damaged_request_is_refused(files):
    (files.path / "request.json").write_text("{")
    planning = MovePlanning(files, cluster())
    assert planning.invite() is None
    assert "request.json is damaged" in files.refusal()
    files.ask_for(3)
    assert planning.invite() is not None


def answer(token, change=None):
    given = {"type": "offer", "token": token, "endpoints": ["127.0.0.2:7000"], "problem": ""}
    return {**given, **(change or {})}


@pytest.mark.parametrize(
    "change",
    [
        *({"endpoints": e} for e in ([], ["127.0.0.2:1", "127.0.0.2:2"], ["127.0.0.1:7000"])),
        *({"endpoints": e} for e in (["127.0.0.2:0"], ["127.0.0.2"], [3], "127.0.0.2:1", None)),
        *({"token": 3}, {"problem": None}, {"more": 1}),
    ],
    ids=repr,
)
def test_offers_are_checked(files, change):
    planning = MovePlanning(files, cluster())
    files.ask_for(3)
    asked = planning.invite()
    for machine in (0, 2):
        planning.hear(machine, offer(asked, files, cluster(machine)))
    with pytest.raises(ValueError, match="."):
        planning.hear(1, answer(asked.token, change))
    planning.hear(1, answer("0" * 16))  # of another move
    assert planning.layout() is None
    planning.hear(1, answer(asked.token))
    assert planning.layout().endpoints[2] == "127.0.0.2:7000"


class Told(Link):
    """The link of a machine that is told what the test says."""

    is_first = False

    def __init__(self, *notes):
        super().__init__(Site(3, 1, "127.0.0.2"), Devices((), False), Rules())
        self._notes.extend((0, note) for note in notes)
        self.told = []

    def tell(self, note):
        self.told.append(note)


START = {"type": "start", "generation": 1, "endpoints": [*SERVERS], "cut": 2, "workers": 2}
INVITE = {"type": "invite", "generation": 1, "servers": 3, "path": "/", "token": "a"}


def test_hostile_notes_start_nothing(files, caplog):
    hostile = [
        *({}, {"type": "x"}, {"type": []}, {"type": "offer"}),
        *({**INVITE, **c} for c in ({"token": "../x"}, {"token": ""}, {"path": "\0"}, {"path": 3})),
        *({**INVITE, **c} for c in ({"servers": 0}, {"servers": 10**9}, {"generation": True})),
        *({**START, **c} for c in ({"generation": 2}, {"generation": 0}, {"cut": 0}, {"more": 1})),
        *({**START, **c} for c in ({"endpoints": ["x"]}, {"endpoints": []}, {"workers": "2"})),
    ]
    link = Told(*hostile)
    processes = ServerProcesses(JobPlan(None, Devices((), False), {}, [], files.path, files.path))
    moves = ServerMoves(processes, cluster(1), link)
    group = Group([], "127.0.0.2")
    moves.poll(group)
    warned = [r for r in caplog.records if "sent an invalid note about servers" in r.getMessage()]
    assert len(warned) == len(hostile)
    assert group.workers == link.told == []
    assert files.read() == ServerLayout(0, SERVERS, 2, 2)
