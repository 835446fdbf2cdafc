"""
Exclusive use with fencing tokens and a fair queue.

Read first: leases.py
"""
