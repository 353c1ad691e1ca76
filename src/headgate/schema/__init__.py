"""JSON Schema algorithms: references, navigation, reduction and provider dialects."""
