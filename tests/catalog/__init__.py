"""Which tools exist, what they are called and how they are listed."""
