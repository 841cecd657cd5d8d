"""Synchronous training with 1 to 3 servers and 1 to 3 workers, every optimizer, sliced and whole.

`make grid` runs it: programs and modules are compared with one process that has all batches, to
1e-10 in double precision. The tests do the same for a few of these cases.
"""

import test_server_models as models
import test_server_programs as programs

from fleetx.ps.modes.server_mode import ServerMode

NUMBERS = [(servers, workers) for servers in (1, 2, 3) for workers in (1, 2, 3)]
OF_PROGRAMS = ("sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "lars", "lamb")
OF_MODULES = (
    ("SGD", {}, ""),
    ("SGD", {"momentum": 0.9}, ""),
    ("Adam", {}, ""),
    ("AdamW", {}, ""),
    ("Adagrad", {}, ""),
    ("RMSprop", {}, ""),
    ("SGD", {"momentum": 0.9}, "lars"),
    ("Adam", models.EXACT, "lamb"),
)


def main() -> None:
    """Compare everything; the first difference ends it."""
    for sliced in (True, False):
        mode = ServerMode(kind="sync", slice_var_up=sliced, min_block_size=4)
        shape = "sliced" if sliced else "whole"
        for kind in OF_PROGRAMS:
            sparse = "is_sparse" if kind in ("sgd", "adagrad") else "dense"
            programs.check([programs.Case(s, w, kind, mode, sparse) for s, w in NUMBERS])
            print(f"programs, {kind}, {shape}: {len(NUMBERS)} equal", flush=True)
        for name, settings, technique in OF_MODULES:
            rows = "both" if name == "Adagrad" or (name == "SGD" and not settings) else "dense"
            models.check(
                [
                    models.Case(s, w, name, mode, settings, technique, embeddings=rows)
                    for s, w in NUMBERS
                ]
            )
            print(f"modules, {technique or name} {settings}, {shape}: {len(NUMBERS)} equal")


if __name__ == "__main__":
    main()
