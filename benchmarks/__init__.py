"""Measurements: speed, quality and peers, each repeatable by one command."""
