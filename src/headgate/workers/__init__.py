"""Work on large results in processes of its own, where it stalls nobody and can be stopped."""
