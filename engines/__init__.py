"""What brings this project to serving engines. Not part of the library's package."""
