"""How Paddle selects, drops and names things, and the interfaces of its 1.x.

`paddle_policy.py` is what a session is given; the package `paddle` has the names that scripts use.
"""
