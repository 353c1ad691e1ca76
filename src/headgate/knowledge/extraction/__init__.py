"""Entities and relationships that are found in text by rules, offline and without a model."""
