"""Readers of well-known data sets from local files, and generators of multi-slot data.

Each module is one data set. Its functions return readers (functions that yield samples) over
files in `~/.cache/paddle/dataset/<name>/`, or in the folder passed as `data_dir`.
"""
