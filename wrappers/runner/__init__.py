"""
The runner, the process in a pane: it starts the agent, delivers prompts, and relays the agent's events.

Read first: runner.py is the loop; delivery.py decides when a prompt may be typed.
"""
