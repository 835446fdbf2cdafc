"""
One adapter for each agent CLI: what it needs, and what it shows. An adapter must start nothing and write nothing.

Read first: protocol.py, then scripted.py as the smallest adapter.
"""

if __name__ != "mam.agents":
    raise ImportError("import this package as mam.agents")
