"""
What MAM needs of the machine that it runs on: processes, files, locks, logs. Each mechanism stands here once, and
needs the standard library alone where a short command uses it.

Read first: process_identity.py says when a process is proven alive, and ending.py ends it. atomic_files.py and locks.py
are the ground of everything that must survive a crash.
"""
