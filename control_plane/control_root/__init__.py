"""
One control root: made, opened, and the monitor that belongs to it, seen from outside.

Read first: context.py is what every verb works with.
"""
