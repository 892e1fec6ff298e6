"""Generated problems: the tasks that ship, and the training data of the shipped weights."""
