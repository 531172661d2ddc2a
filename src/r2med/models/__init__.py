"""Local models, for every room that runs one: locate, load and batch it, and store what it gives."""
