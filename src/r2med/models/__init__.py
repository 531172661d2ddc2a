"""Local models, for every room that runs one: found, loaded, batched, and their output stored."""
