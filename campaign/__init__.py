"""The campaign: what the gateway must survive, run against real processes and sockets."""
