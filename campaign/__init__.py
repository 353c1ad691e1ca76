"""The campaign: what the gate must survive, run against real processes and sockets."""
