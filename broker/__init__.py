"""What is said between MAM's processes, and how it travels. Imports nothing else of MAM."""

if __name__ != "mam.broker":
    raise ImportError("import this package as mam.broker")
