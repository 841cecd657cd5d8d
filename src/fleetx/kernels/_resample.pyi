from typing import Any

def resample(
    pixels: Any,
    box: tuple[float, float, float, float],
    out: Any,
    flip: bool,
    scale: tuple[float, float, float],
    shift: tuple[float, float, float],
    /,
) -> None: ...
