"""Says the schema of a tool in the dialect of a client that does not know all of JSON Schema."""
