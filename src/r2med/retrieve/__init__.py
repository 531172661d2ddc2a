"""First-stage retrieval: find documents for queries."""
