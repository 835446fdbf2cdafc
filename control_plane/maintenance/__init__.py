"""
A control root that is looked over, repaired, moved or copied.

Read first: doctor.py
"""
