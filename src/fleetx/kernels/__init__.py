"""Formulas as functions of tensors, and the optional compiled modules; imports no other package.

Ops of programs, stages of training steps and tables of parameter servers all call these functions,
so that each formula exists only once.
"""
