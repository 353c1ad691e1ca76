"""Stores in plain files of the data directory: state, keys, large results and recorded answers.

Imports the rules whose Protocols it implements, `protocol` and `domain`.
"""
