"""
Jobs: delegated, answered, reported, verified.

Read first: state.py is the pure machine, delegate.py how a job begins.
"""
