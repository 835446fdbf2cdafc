"""
Agents: created, stopped, resumed, and what is known of each.

Read first: sessions.py has the verbs, state.py the pure machine.
"""
