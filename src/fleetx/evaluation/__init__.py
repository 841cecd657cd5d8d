"""Offline evaluation: does a deployed model return the same results as the saved one?

`fleetx evaluate` computes the vectors of a saved model on samples (`vectors.py`), sends the same
samples to a live endpoint (`endpoint.py`), compares (`compare.py`), diagnoses a difference
(`diagnosis.py`) and writes a report (`html_report.py`). Read `evaluate.py` first.
"""
