"""
What is going on, on what evidence, and which command goes on from there.

Read first: agents_and_jobs.py answers `mam why`.
"""
