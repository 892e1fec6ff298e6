"""Custom tasks: prompts from a file, checked line by line and stored by the hash of their content.

``reading`` checks a file, whose rows it leaves to ``rows``. ``scorers`` has the scorers of its answers. ``custom_task``
makes a task of it, stores it and finds it.
"""
