"""Networks for photographs of ImageNet, as programs of paddle.fluid."""
