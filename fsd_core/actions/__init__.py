"""What people and programs can do: one typed function each, from which every door is made (docs/architecture.md)."""
