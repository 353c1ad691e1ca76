"""What the operator asked for: flags, environment and file, read once into one frozen value."""
