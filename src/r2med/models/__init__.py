"""Local models: find and load checkpoints, encode texts in batches, cache the vectors."""
