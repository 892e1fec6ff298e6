"""What is drawn of runs, on the pages and in a notebook: data in, Plotly figure out. No torch."""
