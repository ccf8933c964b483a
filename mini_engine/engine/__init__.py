"""The engine: requests in, tokens out, one `step()` at a time."""

from mini_engine.engine.llm_engine import LLMEngine
from mini_engine.engine.stats import EngineStats

__all__ = ["EngineStats", "LLMEngine"]
