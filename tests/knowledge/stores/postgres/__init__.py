"""Tests of what only PostgreSQL has: a server that goes away, a replica, tables shared by several."""
