"""Reports: comparisons frozen with a text, saved on Compare, and listed and sent from a page of their own."""
