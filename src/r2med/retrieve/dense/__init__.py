"""Dense retrieval: encoders as data, an embedding store, exact search."""
