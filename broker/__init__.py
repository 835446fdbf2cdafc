"""
What MAM's processes say to each other, and how it travels. This package imports nothing else of MAM.

Read first: envelope/signing.py (what is said) and bus/protocol.py (how it travels).
"""

if __name__ != "mam.broker":
    raise ImportError("import this package as mam.broker")
