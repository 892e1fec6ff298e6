"""What a web server lets in."""
