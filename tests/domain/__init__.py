"""Values that everything else talks about."""
