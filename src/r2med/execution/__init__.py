"""How work is executed: the caller's options, shared resources, and workers."""
