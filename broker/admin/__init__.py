"""What administrators and tools ask of a broker, and its HTTP face."""
