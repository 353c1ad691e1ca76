"""What an upstream asks while it works on a request, bridged between the eras."""
