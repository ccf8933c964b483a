"""Where tensors live: caches and the code that reads them."""
