"""Values that travel, the seams between rooms, and errors. Imports pydantic only."""
