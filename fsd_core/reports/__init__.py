"""Reports: text, figures and tables of runs, frozen with the hashes of these runs, and as one HTML file."""
