"""
Agents: how they are created, stopped and resumed, and what is known about each.

Read first: sessions.py creates one, lifecycle.py stops and resumes it, state.py is the pure machine.
"""
