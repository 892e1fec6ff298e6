"""Messages on reviews, to a webhook and by mail."""
