"""The loop of a contestant: report that it is ready, then run steps on request. Runs on Python 3.7
too."""

import json
import resource
import sys
import time


def tell(**facts):
    """Print facts for the contest."""
    print("@" + json.dumps(facts), flush=True)


def peak_mb():
    """Return the highest memory use of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def serve(step, warm_up, settle=None, **facts):
    """Warm up, report, and answer requests for steps until the input ends. A window includes what
    `settle` waits for at its end.
    """
    settle = settle or (lambda: None)
    for i in range(warm_up):
        step(i)
    settle()
    tell(**facts)
    done = 0
    for line in sys.stdin:
        count = int(line)
        start = time.perf_counter()
        for i in range(count):
            step(done + i)
        settle()
        print("@%r" % (time.perf_counter() - start), flush=True)
        done += count
    tell(peak_mb=peak_mb())
