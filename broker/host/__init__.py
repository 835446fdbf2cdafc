"""
What MAM needs of the machine that it runs on: processes, files, locks, logs. Standard library only.

Read first: process_identity.py says when a process is proven alive. atomic_files.py and locks.py are the ground of
everything that must survive a crash.
"""
