"""A script that starts warm behaves as one that is started by Python itself."""

import json
import os
import signal
import subprocess
import sys

import pytest

import warm_start
from waiting import LIMIT, wait_for_end

pytestmark = pytest.mark.slow  # starts jobs or servers

SCRIPT = """
import json, os, pathlib, signal, sys, threading, time
loaded = "torch" in sys.modules
if sys.argv[1] == "tell":
    import helper
    print(json.dumps({
        "argv": sys.argv, "name": __name__, "file": __file__, "folder": os.getcwd(),
        "loaded": loaded, "variable": os.environ["SOME"], "helper": helper.NAME,
        "input": sys.stdin.read(), "main": sys.modules["__main__"].__file__,
        "hash": hash("text"),
    }))
    print("to the other", file=sys.stderr)
def fail():
    raise ValueError("as usual")
if sys.argv[1] == "raise":
    fail()
if sys.argv[1] == "exit":
    threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
    import atexit; atexit.register(print, "at exit")
    sys.exit(7)
if sys.argv[1] == "words":
    sys.exit("some words")
if sys.argv[1] == "segfault":
    os.kill(os.getpid(), signal.SIGSEGV)
if sys.argv[1] == "stay":
    print(os.getpid(), flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def start(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("NAME = 'helper'\n")

    def begin(*arguments, warm=True, **variables):
        environment = warm_start.environment(SOME="value", **variables)
        if not warm:
            del environment["FLEETX_TESTS_WARM_START"]
        return subprocess.Popen(
            [sys.executable, "script.py", *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def result(process):
    with process:
        out, err = process.communicate("typed", timeout=LIMIT)
    return process.returncode, out, err


def test_everything_reaches_the_script(start):
    told = [json.loads(result(start("tell", "x", RANK=rank))[1]) for rank in ("0", "1")]
    code, out, err = result(start("tell", "x", warm=False))
    cold = json.loads(out)
    assert (code, err) == (0, "to the other\n")
    assert [warm.pop("loaded") for warm in told] == [True, True]
    assert not cold.pop("loaded")
    assert len({warm.pop("hash") for warm in (*told, cold)}) == 3
    assert told == [cold, cold]


@pytest.mark.parametrize("way", ["raise", "exit", "words", "segfault"])
def test_it_ends_as_the_script_ends(start, way):
    assert result(start(way)) == result(start(way, warm=False))


def test_signals_arrive(start):
    with start("stay") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == -signal.SIGTERM


def test_a_script_does_not_outlive_the_process_it_is_for(start):
    with start("stay") as process:
        pid = int(process.stdout.readline())
        assert pid != process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.wait(LIMIT)
        wait_for_end(pid)


def test_torch_alone_is_loaded_for_a_copy_of_fleetx(tmp_path):
    (tmp_path / "fleetx.py").write_text("PLACE = 'a copy'\n")
    code = (
        "import sys; loaded = {name.partition('.')[0] for name in sys.modules}; "
        "print('torch' in loaded, {'fleetx', 'paddle'} & loaded); "
        "import fleetx; print(fleetx.PLACE)"
    )
    environment = {**os.environ, **warm_start.torch_variables(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.splitlines() == ["True set()", "a copy"], done.stderr
