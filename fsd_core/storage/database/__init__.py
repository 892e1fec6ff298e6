"""SQLAlchemy over SQLite or PostgreSQL, behind one repository."""
