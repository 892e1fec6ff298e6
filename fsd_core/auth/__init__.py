"""Authentication of requests, and access control."""
