"""A click network with a sparse table, as a program, against real Paddles in the same run.

    python bench/sparse_programs.py [--rounds 9]

26 look-ups in one table of a million rows of 9 numbers, lazy Adam. Real Paddles take part if the
variables PADDLE185 and PADDLE262 name a Python that has them. Figures go to
bench/results/sparse_programs.json.
"""

from __future__ import annotations

import argparse

from contest import Contestant, contest
from record import write_record
from static_graph import real_paddles, row, show


def main() -> None:
    """Run the contest, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant")
    options = parser.parse_args()
    rows = []
    for what, arguments, versions in (
        ("click network steps/s", (), ("1.8.5", "2.6.2")),
        ("click network of sequences, steps/s", ("sequences",), ("1.8.5",)),
    ):
        ours = Contestant("fleetx", "click_fluid.py", arguments=arguments)
        paddles = real_paddles("click_fluid.py", ("1.8.5",))
        for each in paddles:
            each.arguments = arguments
        if "2.6.2" in versions:
            paddles += real_paddles("click_static.py", ("2.6.2",))
        contest([ours, *paddles], steps=8, rounds=options.rounds)
        rows += [row(what, ours, other, 1.0) for other in paddles]
    show(rows, "Sparse programs: this project against its peers")
    write_record("sparse_programs", rows=rows)


if __name__ == "__main__":
    main()
