"""Small generated files of text, translations, matching texts and clicks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = [f"w{number}" for number in range(20)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def sentence(random: np.random.RandomState, longest: int = 6) -> list[str]:
    """Return words that follow each other in a circle: something to learn."""
    start, length = random.randint(len(WORDS)), random.randint(2, longest + 1)
    return [WORDS[(start + i) % len(WORDS)] for i in range(length)]


def bert_folder(folder: Path, documents: int = 16) -> Path:
    """Write vocab.txt, train.txt and val.txt."""
    random = np.random.RandomState(0)
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    for name in ("train.txt", "val.txt"):
        texts = ["\n".join(" ".join(sentence(random)) for _ in range(8)) for _ in range(documents)]
        (folder / name).write_text("\n\n".join(texts) + "\n")
    return folder


def translation_folder(folder: Path, lines: int = 200) -> Path:
    """Write a vocabulary, and sentences with their words in reverse as the translation."""
    random = np.random.RandomState(0)
    folder.mkdir(exist_ok=True)
    tokens = ["<s>", "<e>", "<unk>", *WORDS[:17]]
    (folder / "vocab_all.bpe.32000").write_text("\n".join(tokens) + "\n")
    for name in ("train.tok.clean.bpe.32000.en-de", "val.txt"):
        sentences = [sentence(random) for _ in range(lines)]
        pairs = [f"{' '.join(words)}\t{' '.join(reversed(words))}\n" for words in sentences]
        (folder / name).write_text("".join(pairs))
    return folder


def word_files(folder: Path, lines: int = 60) -> tuple[str, list[str]]:
    """Write a dictionary of counts and two files of sentences."""
    random = np.random.RandomState(0)
    folder.mkdir(exist_ok=True)
    (folder / "words.dict").write_text("".join(f"{word} 5\n" for word in WORDS))
    files = []
    for name in ("a.txt", "b.txt"):
        text = "".join(" ".join(sentence(random)) + "\n" for _ in range(lines))
        (folder / name).write_text(text)
        files.append(str(folder / name))
    return str(folder / "words.dict"), files


def triple_files(folder: Path, lines: int = 64) -> tuple[str, str]:
    """Write a dictionary and lines of a query, a text that shares its words, and one at random."""
    random = np.random.RandomState(0)
    folder.mkdir(exist_ok=True)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    rows = []
    for _ in range(lines):
        query, other = sentence(random), sentence(random)
        rows.append("\t".join(" ".join(text) for text in (query, query[::-1], other)))
    (folder / "triples.txt").write_text("\n".join(rows) + "\n")
    return str(folder / "words.txt"), str(folder / "triples.txt")


def click_file(path: Path, lines: int = 256) -> Path:
    """Write Criteo's lines; one category decides about the click."""
    random = np.random.RandomState(0)
    rows = []
    for _ in range(lines):
        numbers = random.randint(0, 10, 13).astype(str).tolist()
        categories = [f"{value:08x}" for value in random.randint(0, 3, 26)]
        label = str(int(categories[0] == "00000001"))
        rows.append("\t".join([label, *numbers, *categories]))
    path.write_text("\n".join(rows) + "\n")
    return path
