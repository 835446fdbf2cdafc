"""
A tree and a branch for each writer: prepared, listed, committed, removed.

Read first: prepare.py
"""
