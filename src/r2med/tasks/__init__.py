"""What is measured: the registry of tasks, loading, download and verification."""
