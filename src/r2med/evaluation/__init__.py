"""How work is done: systems on tasks, here or on many workers."""
