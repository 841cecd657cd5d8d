"""Keys of a server job on several machines, which wait for each other while keys are made."""

import subprocess
import sys
import threading

from launching import clean_environment

from fleetx.launch.devices import Devices
from fleetx.launch.job_layout import Site
from fleetx.launch.link import Rules
from fleetx.launch.member import Member
from fleetx.launch.root import Root
from ports import free_ports
from waiting import LIMIT

KEYS = {"server_secret": "of servers", "worker_secret": "of workers"}
JOB = {"protocol": 4}


def test_machines_join_while_keys_are_made():
    """A machine that has joined waits a few seconds for the start: keys must not be made then."""
    meeting = ("127.0.0.1", free_ports(1)[0])
    devices = Devices(((),), False)
    makes_keys, may_go_on = threading.Event(), threading.Event()
    joined = []

    def make_keys():
        makes_keys.set()
        assert may_go_on.wait(LIMIT)
        return KEYS

    rules = Rules(make_keys=make_keys)
    root = Root(Site(2, 0, "127.0.0.1", meeting=meeting), devices, rules, JOB)
    member = Member(Site(2, 1, "127.0.0.1", meeting=meeting), devices, Rules(), JOB)
    first = threading.Thread(target=lambda: joined.append(root.meet(0, lambda: None)))
    first.start()
    assert makes_keys.wait(LIMIT)  # nobody else has joined yet
    may_go_on.set()
    cluster = member.meet(0, lambda: None)
    first.join(LIMIT)
    assert joined[0].keys == KEYS
    assert cluster.keys == {**KEYS, "server_secret": ""}  # there is no server on that machine
    member.close()
    root.close()


def test_a_launcher_makes_keys_without_torch():
    code = (
        "import sys\n"
        "from fleetx.launch import fleetrun\n"
        "from fleetx.launch.server_arguments import ServerOptions\n"
        "from fleetx.launch.server_keys import new_keys\n"
        "assert len(new_keys(ServerOptions())['server_public']) == 40\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'it has imported torch or numpy'\n"
    )
    subprocess.run([sys.executable, "-c", code], env=clean_environment(), check=True, timeout=LIMIT)
