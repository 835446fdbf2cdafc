"""
Settings and places: the environment and `.mam.env`, read once and typed.

Read first: settings.py holds what a person has chosen, layout.py says where everything lies.
"""
