"""
The embedded broker: the real nats-server with our configuration, started and ended by MAM.

Read first: config.py is what it is told, process.py how it lives.
"""
