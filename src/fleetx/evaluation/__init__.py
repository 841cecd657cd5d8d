"""Offline evaluation: does a deployed model answer as the saved one does?

`fleetx evaluate` computes the vectors of a saved model on samples (`vectors.py`), sends the same
samples to a live endpoint (`endpoint.py`), compares (`compare.py`), says what a difference looks
like (`diagnosis.py`) and writes a page about it (`html_report.py`). Read `evaluate.py` first.
"""
