"""Custom tasks: prompts from a file of JSON Lines, checked line by line and stored by the hash of their content.

``reading`` checks a file, ``scorers`` has the scorers of its answers, ``custom_task`` makes a task of it, ``lookup``
stores and finds it.
"""
