"""Programs of one op against real Paddle 1.8.5 in the same run: building, lowering, one run.

    python bench/one_op.py [--rounds 9]

Paddle takes part if the variable PADDLE185 names a Python that has it. Figures go to
bench/results/one_op.json.
"""

from __future__ import annotations

import argparse

from contest import Contestant, contest
from record import write_record
from static_graph import real_paddles, row, show


def main() -> None:
    """Run the contests, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant")
    options = parser.parse_args()
    rows = []
    for what, arguments in (
        ("new programs of one conv2d, with and without gradients, pairs/s", ("programs",)),
        ("new programs of one of 8 other ops, pairs/s", ("programs", "others")),
        ("one conv2d without a program, 24 times, rounds/s", ("numeric",)),
        ("one of 8 other ops without a program, 24 times, rounds/s", ("numeric", "others")),
    ):
        ours = Contestant("fleetx", "one_op_fluid.py", arguments=arguments)
        paddles = real_paddles("one_op_fluid.py", ("1.8.5",))
        for each in paddles:
            each.arguments = arguments
        contest([ours, *paddles], steps=32, rounds=options.rounds)
        rows += [row(what, ours, other, 0.5) for other in paddles]
    show(rows, "One op: this project against its peers")
    write_record("one_op", rows=rows)


if __name__ == "__main__":
    main()
