"""Inspection of programs: op and memory statistics, text, searches, drawings."""
