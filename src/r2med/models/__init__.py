"""Local models for every room that runs one: locate, load and batch it, store what it gives."""
