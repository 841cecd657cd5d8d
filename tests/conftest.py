"""Configuration of all tests: random order, fixed random seeds, nothing left behind.

`make test` prints the seed of the order; `make test ARGS=--randomly-seed=N` repeats it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from zlib import crc32

import pytest

import leftovers
import shares
import warm_start

# A shell that starts the tests in the background, or nohup, lets them ignore these signals, and
# with them every process that they start and then interrupt. Handlers are not passed on.
if threading.current_thread() is threading.main_thread():
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)

leftovers.adopt_orphans()
# torch's compiler works in this process instead of starting a pool of others that load torch too.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# It also trusts /proc/cpuinfo, instead of loading a library per instruction set in other processes.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once, for all processes of pytest
        stack = contextlib.ExitStack()
        stack.enter_context(warm_start.servers())
        config.add_cleanup(stack.close)
    # The order is random, the numbers are not: see _fixed_random_numbers.
    config.option.randomly_reset_seed = False


# Fixtures that run a job of several processes, for all tests of a module.
_JOBS = {"trained", "walked", "searched", "job", "jobs", "served", "told", "workers"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not _JOBS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Order the tests for several processes, and exclude what the test modules have imported from
    garbage collection.

    It is hundreds of thousands of objects that stay, and looking for leftovers collects often. The
    compiler, which the first optimizer of torch imports, is a third of them.
    """
    processes = getattr(session.config, "workerinput", {}).get("workercount", 1)
    if processes > 1:
        session.items[:] = shares.slow_modules_first(session.items, processes)
    if len(session.items) > 1000 and not session.config.option.collectonly:
        importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Report the order of the tests, why some were skipped, and how to run them."""
    seed = getattr(config.option, "randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    packages: set[str] = set()
    missing = 0
    for reason, count in sorted(reasons.items()):
        install = re.search(r"apt-get install ([\w. +-]+)", reason)
        if install:
            packages.update(install[1].split())
            missing += count
        else:
            terminalreporter.write_line(f"skipped {count}: {reason}")
    if missing:
        command = f"apt-get install --no-install-recommends {' '.join(sorted(packages))}"
        terminalreporter.write_line(f"skipped {missing}: programs are missing; as root: {command}")


@pytest.fixture(scope="session")
def _checkout() -> leftovers.Checkout:
    return leftovers.Checkout()


@pytest.fixture(autouse=True)
def _fixed_random_numbers(request: pytest.FixtureRequest) -> None:
    """Seed all random generators, so that a test draws the same numbers in any order."""
    seed = crc32(request.node.nodeid.encode())
    random.seed(seed)
    if "numpy" in sys.modules:
        random_numbers = sys.modules["numpy"].random
        random_numbers.seed(seed)
        for value in vars(request.module).values():
            if isinstance(value, random_numbers.Generator):  # of all tests of a module
                value.bit_generator.state = random_numbers.default_rng(seed).bit_generator.state
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@pytest.fixture(autouse=True)
def _nothing_is_left(_fixed_random_numbers: None, _checkout: leftovers.Checkout) -> Iterator[None]:
    """Fail a test that leaves something behind; it is set up before other fixtures of a test."""
    if leftovers.has_session():  # that a fixture of wider scope began
        leftovers.end_sessions()
    was = leftovers.before(_checkout)
    yield
    left = leftovers.left(was, _checkout)
    if left:
        leftovers.end_sessions()  # so that only the test that left one fails
        pytest.fail("this test leaves behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture
def fresh_fleet() -> Iterator[None]:
    """End the session of Fleet after a test that calls `fleet.init` in this process."""
    yield
    leftovers.end_sessions()


@pytest.fixture
def fresh_graph() -> Iterator[None]:
    """New default programs, a new scope, fresh names and a fixed seed, for one test."""
    import torch

    from fleetx import static

    torch.manual_seed(1)
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield
