"""Read the files of a folder as columns: find the layout, parse, and check across files."""
