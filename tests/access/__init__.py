"""Two identities and two visibilities, through every way into the gateway."""
