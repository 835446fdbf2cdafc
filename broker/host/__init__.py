"""
What MAM asks of the machine it runs on: processes, files, locks, logs. Standard library only.

Read first: process_identity.py says when a process is proven alive; what is durable rests on atomic_files.py and
locks.py.
"""
