"""Servers behind the gateway whose results the agents show to the model."""
