"""
Questions and acts on repositories and worktrees; nothing else starts git.

Read first: command.py runs git; snapshot.py and uncommitted.py say what a tree really holds.
"""
