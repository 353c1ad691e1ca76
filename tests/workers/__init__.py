"""Work on stored results: what it gives, and what it can never do."""
