"""What the person who runs the gate sees."""
