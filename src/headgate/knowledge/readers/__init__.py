"""The team's documents as they lie in files: found, read in a process of their own, and watched."""
