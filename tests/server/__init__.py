"""What clients receive, over real sockets and pipes."""
