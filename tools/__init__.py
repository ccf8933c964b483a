"""For maintainers: what builds the lessons and trains the small model."""
