"""Parameters of an earlier training, from a folder with a file for each."""

import os

import paddle.fluid as fluid


def load_pretrained(exe: fluid.Executor, folder: str, program: fluid.Program) -> None:
    """Load the parameters in a folder; raise an error if it has none of them."""

    def is_there(var: fluid.Variable) -> bool:
        return var.persistable and os.path.exists(os.path.join(folder, var.name))

    if not any(is_there(var) for var in program.list_vars()):
        raise SystemExit(f"--pretrained_model {folder!r} holds no parameter of the network.")
    fluid.io.load_vars(exe, folder, main_program=program, predicate=is_there)
