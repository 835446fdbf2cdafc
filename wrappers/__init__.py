"""Programs that MAM starts and holds: multiplexers, git, the runner."""

if __name__ != "mam.wrappers":
    raise ImportError("import this package as mam.wrappers")
