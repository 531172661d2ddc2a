"""From the files of a folder to columns: layouts, parsing, and the checks across files."""
