"""Section `knowledge`: how well the team's documents are found, and how soon."""
