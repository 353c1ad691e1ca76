"""What clients are told, over real sockets and pipes."""
