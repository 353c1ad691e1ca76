"""The commands `headgate knowledge ...`, and the operations behind them.

In come options of the command line; out go tables or JSON. It may import everything of the document server.
"""
