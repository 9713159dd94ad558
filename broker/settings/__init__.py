"""Configuration: its keys, files and edits, decisions over it (promotions, conversions), restarts."""
