"""Dense retrieval: encoders defined by registry entries, and exact or approximate search."""
