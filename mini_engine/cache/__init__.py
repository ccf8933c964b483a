"""The KV cache's bookkeeping: blocks, reference counts, prefix index, block tables. Integers only, no tensors."""

from mini_engine.cache.block_pool import NULL_BLOCK, Block, BlockPool, FreeBlockQueue, NoFreeBlocksError
from mini_engine.cache.contiguous import RESERVATIONS, BuddyAllocator, FirstFitAllocator, NoRunError, Waste
from mini_engine.cache.hashing import BlockHasher, ShortHasher, TokenChain, WeakHasher, pack_tokens
from mini_engine.cache.kv_manager import CacheRequest, KVCacheManager
from mini_engine.cache.ops import CacheOp
from mini_engine.cache.prefix_index import BlockIndex, PrefixIndex
from mini_engine.cache.radix import RadixPrefixIndex

__all__ = [
    "NULL_BLOCK",
    "RESERVATIONS",
    "Block",
    "BlockHasher",
    "BlockIndex",
    "BlockPool",
    "BuddyAllocator",
    "CacheOp",
    "CacheRequest",
    "FirstFitAllocator",
    "FreeBlockQueue",
    "KVCacheManager",
    "NoFreeBlocksError",
    "NoRunError",
    "PrefixIndex",
    "RadixPrefixIndex",
    "ShortHasher",
    "TokenChain",
    "Waste",
    "WeakHasher",
    "pack_tokens",
]
