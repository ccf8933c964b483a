"""What the cache asks of a backend: move the content of one block to another."""

from __future__ import annotations

from typing import Literal, NamedTuple


class CacheOp(NamedTuple):
    """Copy one whole block, all layers, K and V.

    kind        src           dst
    "copy"      device block  device block   copy-on-write: a shared block gets a private copy
    "swap_out"  device block  host block     the victim of a preemption leaves the device
    "swap_in"   host block    device block   and returns

    A backend executes the operations of a plan one after another, in the order of the plan, before the forward pass.
    The order matters: a block freed by one operation may be the target of the next.
    """

    kind: Literal["copy", "swap_out", "swap_in"]
    src: int
    dst: int
