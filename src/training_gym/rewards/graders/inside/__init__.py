"""Source that runs in sandboxes: the standard library only, sent as text by `graders.bundle`."""
