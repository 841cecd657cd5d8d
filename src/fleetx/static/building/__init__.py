"""What layers are built with: `LayerHelper`, `ParamAttr`, checks of arguments, weight
normalization.

`one_op` has the body of a layer that is a single op, `spatial_variants` makes the functions for
one, two and three spatial axes from one definition.
"""
