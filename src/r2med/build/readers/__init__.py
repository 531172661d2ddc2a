"""Extract the text of documents: plain text, Markdown, HTML, PDF, JATS XML and JSON lines.

The files are not trusted. No reader follows a link, loads a DTD, expands an entity that a file
defines or runs a script; sizes are limited, and PDF files are read in a process with limits.
"""
