"""Keeps some fields of JSON, or leaves some out."""
