"""
What each agent CLI needs and shows. An adapter describes and reads; it starts nothing and writes nothing.

Read first: protocol.py, then scripted.py as the smallest adapter.
"""

if __name__ != "mam.agents":
    raise ImportError("import this package as mam.agents")
