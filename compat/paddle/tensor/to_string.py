"""How eager tensors are printed."""

from paddle.framework import set_printoptions

__all__ = ["set_printoptions"]
