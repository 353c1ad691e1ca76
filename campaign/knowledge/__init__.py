"""The cases of the team's documents: K01 and on."""
