"""Completions without an editor: positions, the engine that answers, and the answer."""
