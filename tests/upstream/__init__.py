"""What goes out to servers and what comes back, with scripted servers and real children."""
