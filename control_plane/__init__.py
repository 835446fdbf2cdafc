"""
What it means: keeps, decides, explains.

Read first: messaging/inbox.py, monitor/monitor.py, loops/state.py.
"""

if __name__ != "mam.control_plane":
    raise ImportError("import this package as mam.control_plane")
