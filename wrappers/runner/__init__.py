"""
The process in a pane: starts the agent, delivers prompts, relays what it says.

Read first: runner.py is the loop; delivery.py decides when a prompt may be typed.
"""
