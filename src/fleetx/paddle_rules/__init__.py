"""Paddle's rules for selecting, dropping and naming techniques, and the interfaces of 1.x.

`paddle_policy.py` is the policy of a session; the package `paddle` has the names that scripts use.
"""
