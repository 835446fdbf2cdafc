"""
The one process that looks, compares and acts.

Read first: monitor.py is its loop, reconcile.py the differences between registry and world.
"""
