"""
Multiplexers, which hold the panes of agents: the protocol and its implementations.

Read first: protocol.py is the promise. tmux.py and headless.py keep it.
"""
