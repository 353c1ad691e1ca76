"""The load generator: its own process, the same for every candidate, verifying each answer it counts."""
