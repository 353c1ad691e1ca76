"""How a call is carried to its upstream, and when it is not even tried."""
