"""The official conformance suite, run against a fixture server directly and through the gateway."""
