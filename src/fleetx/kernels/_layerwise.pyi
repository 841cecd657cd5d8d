from collections.abc import Sequence

def lars(
    rows: Sequence[tuple[int, ...]],
    rate: float,
    mu: float,
    coeff: float,
    decay: float,
    epsilon: float,
    adapt: bool,
    threads: int,
) -> None: ...
def lamb(
    rows: Sequence[tuple[int, ...]],
    rate: float,
    beta1: float,
    beta2: float,
    factor: float,
    add: float,
    decay: float,
    adapt: bool,
    threads: int,
) -> None: ...
