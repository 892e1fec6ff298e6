"""Problems that are made up: the tasks that ship, and what the shipped weights were trained on."""
