"""
Git: questions about repositories and worktrees, and changes to them. No other room starts git.

Read first: command.py runs git; snapshot.py and uncommitted.py say what a tree really holds.
"""
