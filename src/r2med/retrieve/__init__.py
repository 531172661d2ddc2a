"""First stage: finding documents for queries."""
