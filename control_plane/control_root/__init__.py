"""
One control root: how it is made and opened, and its monitor as other processes see it.

Read first: context.py, which every verb works with.
"""
