"""One model on one kind of GPU: what fits, how fast it can be, and why. The `mini-engine size` command and its answers."""

from mini_engine.sizing.sizing import Sizing, size

__all__ = ["Sizing", "size"]
