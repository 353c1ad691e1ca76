"""Calls that belong together: sagas, whose steps are undone in reverse when one of them fails."""
