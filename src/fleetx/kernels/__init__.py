"""Formulas as functions of tensors, and the optional compiled modules; imports nothing of ours.

Ops of programs, stages of training steps and tables of parameter servers all call these functions,
so that a formula exists once.
"""
