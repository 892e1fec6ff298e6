"""Beams: a text of several candidates, written layer by layer beside the loop, which writes one text by appending."""
