"""Latency of suggestions at the start of a line, while functions are typed in real workspaces."""
