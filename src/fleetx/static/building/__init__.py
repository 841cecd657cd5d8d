"""What layers are built with: `LayerHelper`, `ParamAttr`, checks of arguments, weight
normalization.

`op_layer` declares a layer that is one op, `one_op` appends it in a function with a body.
`spatial_variants` makes functions for several numbers of axes, or several ops, from one definition;
`adapted` makes a function of one generation of the API from that of another.
"""
