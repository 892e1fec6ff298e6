(...values) => window.fsd.choose($PLACES$, values)
