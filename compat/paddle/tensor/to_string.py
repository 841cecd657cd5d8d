"""How eager tensors are printed."""

from paddle.framework import set_printoptions
