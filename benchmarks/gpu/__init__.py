"""The parts of `gpu_kernels.py`. They import torch, Triton, NumPy and the engine, so that they run where nothing else is installed."""
