"""
Work, review by all on one exact commit, rework: the loop.

Read first: state.py is the pure machine, run.py carries it out.
"""
