"""
Programs that MAM starts and holds: git, multiplexers, the runner.

Read first: runner/runner.py and runner/delivery.py.
"""

if __name__ != "mam.wrappers":
    raise ImportError("import this package as mam.wrappers")
