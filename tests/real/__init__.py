"""Headgate judged by the clients and servers that people use."""
