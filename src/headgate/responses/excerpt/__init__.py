"""What is shown of a result that is too large to be shown whole."""
