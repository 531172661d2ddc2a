"""Language models as rerankers: they are asked for an order, or for a grade."""
