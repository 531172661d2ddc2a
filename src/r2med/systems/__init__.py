"""Systems as text: the grammar, the registry of names, and pipelines built from them."""
