"""
Where agents' panes live: the Multiplexer protocol and its implementations.

Read first: protocol.py is the promise, tmux.py and headless.py keep it.
"""
