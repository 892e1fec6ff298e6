"""ASGI middleware that accepts or refuses requests."""
