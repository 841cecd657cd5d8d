"""What can be saved of a program of which every worker has a part (`sharding`, `pipeline`)."""

from __future__ import annotations

from fleetx.step.program_step import ProgramParameterSync


def check_file(sync: ProgramParameterSync, filename: str | None) -> None:
    """Refuse one file for the variables of all workers."""
    if filename and sync.divides_state:
        raise ValueError(
            f"fleet.save_persistables cannot write all variables to {filename!r}: with sharding "
            "and pipeline, each worker has the optimizer state of other parameters: leave filename "
            "out, and let all workers call it with the same folder."
        )


def check_model(sync: ProgramParameterSync) -> None:
    """Refuse a whole model where workers have different parameters."""
    if sync.divides_parameters:
        raise ValueError(
            "fleet.save_inference_model writes a whole model, but every worker has one stage of it "
            "(pipeline): let all workers call fleet.save_persistables with the same folder, load "
            "that in one process without pipeline, and save the model there."
        )
