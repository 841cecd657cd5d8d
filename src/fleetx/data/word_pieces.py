"""WordPiece with a vocabulary file of BERT (one piece per line), using the package `tokenizers`."""

from __future__ import annotations

from pathlib import Path

from fleetx.data.text_lines import list_files, read_lines

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class WordPieces:
    """Tokenizer that converts text to indices of word pieces."""

    def __init__(self, vocab: str | Path, *, lowercase: bool = True) -> None:
        """Read a vocabulary; `lowercase` is for "uncased" and Chinese models."""
        try:
            from tokenizers import BertWordPieceTokenizer
        except ImportError as error:
            raise ModuleNotFoundError(
                "Tokenizing text for BERT needs the package tokenizers: pip install 'fleetx[text]'."
            ) from error
        numbers: dict[str, int] = {}
        for line in read_lines(list_files(vocab)):
            if line.text in numbers:
                raise line.error(f"the piece {line.text!r} is on line {numbers[line.text] + 1} too")
            numbers[line.text] = line.number - 1
        missing = [piece for piece in _SPECIAL if piece not in numbers]
        if missing:
            raise ValueError(
                f"The vocabulary {vocab} lacks {', '.join(missing)}; is it the vocab.txt of a BERT?"
            )
        self._tokenizer = BertWordPieceTokenizer(vocab=numbers, lowercase=lowercase)
        self.size = len(numbers)
        self.pad, self.unk, self.cls, self.sep, self.mask = (numbers[p] for p in _SPECIAL)
        self.special = frozenset(numbers[piece] for piece in _SPECIAL)

    def encode(self, text: str) -> list[int]:
        """Return the indices of the pieces of a text, without [CLS] and [SEP]."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids
