"""Analysis of runs without plotting: baselines, slowdown, matched points, quality."""
