"""How work is done: systems on tasks, in this process."""
