"""
Agents over a bad bus, and recorded events played again in bad orders.

Read first: chaos.py, replay.py
"""
