"""Small faults planted at random, and the tests that should notice them."""
