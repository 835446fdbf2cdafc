"""
The content of messages: events, topics, keys, and the signed envelope around a message.

Read first: signing.py is the envelope, events.py the union of everything that crosses a process border.
"""
