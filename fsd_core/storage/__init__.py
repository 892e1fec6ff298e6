"""Storage: the database, the values that cross it, and workspaces as files."""
