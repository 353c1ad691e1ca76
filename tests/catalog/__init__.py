"""What the upstreams offer, what it is called and how it is listed."""
