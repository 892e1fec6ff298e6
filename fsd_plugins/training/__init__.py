"""How drafts, heads, adapters and tables are made, those that ship too, and how a pair is calibrated."""
