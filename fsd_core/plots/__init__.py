"""Figures of runs for the pages and notebooks: data in, Plotly figure out. No torch."""
