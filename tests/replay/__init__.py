"""Conversations recorded from real servers, played to a gate and compared with what comes out of it."""
