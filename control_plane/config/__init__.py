"""
Settings and places: environment and `.mam.env` read once, typed.

Read first: settings.py (what was chosen), layout.py (where everything lies).
"""
