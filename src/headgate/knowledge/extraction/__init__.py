"""Entities and relationships that are found in text by rules, offline and without a model."""

from headgate.knowledge.extraction.extracting import extract
from headgate.knowledge.extraction.names import Known, Names, Sighting

__all__ = ["Known", "Names", "Sighting", "extract"]
