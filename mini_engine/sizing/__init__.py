"""One model on one kind of GPU: what fits, how fast it can be, and why. The `mini-engine size` command and its answers."""

from mini_engine.sizing.result import CacheSizing, Sizing
from mini_engine.sizing.sizing import size, size_cache

__all__ = ["CacheSizing", "Sizing", "size", "size_cache"]
