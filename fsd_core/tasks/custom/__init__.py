"""Custom tasks: prompts from a file, checked line by line and stored by the hash of their content.

``reading`` checks a file. On the way it goes through ``unpacking`` (gzip, Parquet), ``json_rows`` (its objects),
``shapes`` (what each of them asks) and ``lines`` (each line, checked). ``scorers`` has the scorers of its answers,
``custom_task`` makes a task of it, ``lookup`` stores and finds it.
"""
