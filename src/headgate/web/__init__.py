"""What the person who runs the gate sees: health, readiness, metrics, pages."""
