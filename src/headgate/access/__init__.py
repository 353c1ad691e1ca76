"""Who may call what, and how often."""
