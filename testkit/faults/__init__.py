"""Networks, bodies and definitions that go wrong on command."""
