"""Sizes of BERT: Devlin et al., "BERT", 2018, and two larger ones."""

from __future__ import annotations

from dataclasses import dataclass

# How many words the published vocabularies have.
_WORDS = {"ch": 21128, "en": 30522}


@dataclass(frozen=True, kw_only=True)
class BertSizes:
    """How large a BERT is."""

    layers: int = 12
    """Layers of the encoder."""
    hidden: int = 768
    """Length of the vector of a token."""
    heads: int = 12
    """Attention heads; `hidden` is a multiple."""
    inner: int = 3072
    """Width of the feed-forward layer."""
    words: int = 30522
    """Size of the vocabulary."""
    positions: int = 512
    """The longest input."""
    kinds: int = 2
    """Token types: first and second sentence."""
    dropout: float = 0.1
    """Share of values left out in training, in attention too."""

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden={self.hidden} of a BERT must be a multiple of heads={self.heads}."
            )


# The huge one is that of model-parallel work; the giant one has about the 27.4 billion parameters
# that Paddle's documents give for theirs, whose shape they leave out.
_SHAPES = {
    "base": {"layers": 12, "hidden": 768, "heads": 12, "inner": 3072},
    "large": {"layers": 24, "hidden": 1024, "heads": 16, "inner": 4096},
    "huge": {"layers": 32, "hidden": 1280, "heads": 16, "inner": 5120},
    "giant": {"layers": 60, "hidden": 6144, "heads": 48, "inner": 24576},
}
_ONLY_ENGLISH = ("huge", "giant")


def bert_sizes(name: str, lang: str) -> BertSizes:
    """Return the sizes of 'base', 'large', 'huge' or 'giant', for 'ch' (Chinese) or 'en'."""
    if name not in _SHAPES:
        raise ValueError(f"there is no BERT called {name!r}: choose one of {', '.join(_SHAPES)}.")
    if lang not in _WORDS:
        raise ValueError(f"lang of BERT must be 'ch' or 'en', not {lang!r}.")
    if lang == "ch" and name in _ONLY_ENGLISH:
        raise ValueError(f"BERT {name} is English only: pass lang='en'.")
    return BertSizes(**_SHAPES[name], words=_WORDS[lang])
