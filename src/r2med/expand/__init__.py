"""Generation-augmented retrieval: a model writes or reasons before anything is searched."""
