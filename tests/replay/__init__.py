"""Conversations recorded from real servers, played to a gateway and compared with what comes out of it."""
