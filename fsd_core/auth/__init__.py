"""Who a request is from, and whether it is let in."""
