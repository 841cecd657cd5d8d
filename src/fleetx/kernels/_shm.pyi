from typing import Any

VERSION: int

def create(members: int, chunk: int, token: bytes, /) -> int: ...
def join(file: int, rank: int, members: int, chunk: int, token: bytes, spins: bool, /) -> Any: ...
def watch(group: Any, /) -> None: ...
def leave(group: Any, /) -> None: ...
def run(
    group: Any,
    kind: int,
    type: int,
    operation: int,
    root: int,
    count: int,
    to: int,
    source: int,
    seconds: float,
    patience: float,
    /,
) -> tuple[int, int, tuple[int, ...]] | None: ...
