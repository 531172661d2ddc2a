"""Task pages: figures computed from results, prose as data, in Markdown, HTML and JSON."""
