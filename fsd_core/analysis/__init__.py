"""What is concluded from runs, without a figure being drawn: baselines, slowdown, matched points, quality."""
