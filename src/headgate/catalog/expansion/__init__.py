"""expandSchema: gives back what a listing leaves out of a tool, whole or part by part."""
