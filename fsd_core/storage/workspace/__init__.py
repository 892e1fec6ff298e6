"""Everything that people made and measured, as one file."""
