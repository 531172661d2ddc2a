"""Rankings made elsewhere as first stages: run files, stored results, published candidates."""
