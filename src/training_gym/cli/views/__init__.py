"""Verbs that look at runs through the index: what the dashboard shows, as text and as JSON."""
