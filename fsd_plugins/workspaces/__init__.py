"""Workspaces as files: everything that people made and measured, exported to one file and imported from it."""
