"""
This installation measured against its budgets.

Read first: suite.py
"""
