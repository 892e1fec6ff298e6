"""How sure a figure is: intervals, ratios, paired differences, non-inferiority, trade-off curves and betting."""
