"""Tasks of one's own: prompts from a file of JSON Lines, checked line by line and kept by the hash of their content.

``reading`` checks a file, ``scorers`` has what its answers may be judged by, ``task`` makes a task of it, ``finding``
keeps and finds it.
"""
