"""Shapes of variables while a program is built, and offsets of sequences (LoD).

`infer_shape` runs an op's function on meta tensors (`meta_run`); `infer_rules` has direct
rules. `lod` and `lod_values` are the offsets of variable-length data at run time.
"""
