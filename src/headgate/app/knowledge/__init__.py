"""The team's documents as the settings want them: their store, their tools, their commands."""
