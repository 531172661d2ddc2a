"""Read the traces of agents from any source, and score them."""
