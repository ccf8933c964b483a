"""What several benchmarks share. Scripts beside this folder import it; it runs nothing by itself."""
