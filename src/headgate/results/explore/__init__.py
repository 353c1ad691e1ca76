"""Outlines of a content for proxy_explore: JSON, XML, HTML, YAML and plain text."""
