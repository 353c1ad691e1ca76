"""Messages as bytes: envelopes, the two protocol eras, framing and the numbers of errors."""
