"""The peers that we are measured beside, each in an environment of its own."""
