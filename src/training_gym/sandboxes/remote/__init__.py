"""Sandboxes of remote providers, behind the same protocol, through the providers' own clients."""
