"""Sizes of BERT: Devlin et al., "BERT", 2018, and two larger ones."""

from __future__ import annotations

from dataclasses import dataclass

# The sizes of the published vocabularies.
_WORDS = {"ch": 21128, "en": 30522}


@dataclass(frozen=True, kw_only=True)
class BertSizes:
    """The sizes of a BERT."""

    layers: int = 12
    """The number of encoder layers."""
    hidden: int = 768
    """The length of a token's vector."""
    heads: int = 12
    """The number of attention heads, which divides `hidden`."""
    inner: int = 3072
    """The width of the feed-forward layer."""
    words: int = 30522
    """The size of the vocabulary."""
    positions: int = 512
    """The maximum length of an input."""
    kinds: int = 2
    """The number of token types: first and second sentence."""
    dropout: float = 0.1
    """The dropout probability, also in attention."""

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden={self.hidden} of a BERT must be a multiple of heads={self.heads}."
            )


# The huge size is known from model-parallel work; the giant one has about the 27.4 billion
# parameters of Paddle's documents, which do not give its shape.
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
