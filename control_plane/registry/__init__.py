"""
The database of one control root: records, transactions, audit log; the only writer of state.

Read first: records.py has the columns, transactions.py the one way to change them.
"""
