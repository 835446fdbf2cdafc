"""
How messages travel: the Bus protocol and its implementations.

Read first: protocol.py is the promise. mqtt.py keeps it over paho, memory.py inside one process; impaired.py loses and
reorders on purpose.
"""
