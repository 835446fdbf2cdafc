"""
Between bus and registry: what comes in, what goes out, what is published.

Read first: inbox.py is the one entrance of truth.
"""
