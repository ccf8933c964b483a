"""mini_engine: a working LLM inference engine, small enough to read in a day."""

__version__ = "0.1.0"
