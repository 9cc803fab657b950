"""What the user declared: models, loader, schema, selectors."""
