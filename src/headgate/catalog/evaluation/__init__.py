"""Says how well search finds the tools of a catalog: on labelled requests, or by a check of its own."""
