"""Synchronous, asynchronous, half-asynchronous and geo training."""
