"""Result files of other tools, read as measured series: one file and one line in ``result_reading`` for each tool."""
