"""Tasks: registry, loading, download and verification."""
