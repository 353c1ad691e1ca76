"""When a call is carried out and when it is not even tried."""
