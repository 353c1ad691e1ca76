"""What a model reads when a real agent uses the gateway."""
