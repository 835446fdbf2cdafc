"""
The database of one control root: records, transactions, audit log. All state is written here.

Read first: records.py has the columns, transactions.py is the only way to change them.
"""
