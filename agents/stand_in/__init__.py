"""
A stand-in for the models that agent CLIs ask: it does a job as its brief says, offline, without an account.

Read first: briefs.py says what a brief may order, policy.py decides, wires.py speaks to each CLI, server.py listens.
"""
