"""Uncertainty of figures: intervals, ratios, paired differences, non-inferiority, trade-off curves and betting."""
