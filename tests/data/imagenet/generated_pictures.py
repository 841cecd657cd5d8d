"""Small ImageNet folders of generated pictures."""

from pathlib import Path

import numpy as np
from PIL import Image


def photograph(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Smooth colours with some noise: what JPEG is made for, and no two alike."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [
        np.sin(x / (9 + 3 * c + seed % 5)) + np.cos(y / (7 + 2 * c + seed % 3)) for c in range(3)
    ]
    pixels = 127 + 55 * np.stack(waves, axis=2) + random.normal(0, 4, (height, width, 3))
    return pixels.clip(0, 255).astype(np.uint8)


def write_dataset(root: Path, count: int, *, size: int = 40, phase: str = "train") -> Path:
    """Write a list and its pictures, one class for every two."""
    lines = []
    for i in range(count):
        name = f"n{i // 2:08d}/n{i // 2:08d}_{i}.jpeg"
        path = root / phase / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(size + i % 7, size + i % 5, i)).save(path, "JPEG", quality=90)
        lines.append(f"{name} {i // 2}\n")
    (root / f"{phase}.txt").write_text("".join(lines))
    return root
