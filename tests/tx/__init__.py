"""The client library: what is promised to programs that call tools through it."""
