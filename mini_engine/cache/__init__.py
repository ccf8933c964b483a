"""The KV cache's bookkeeping: blocks, reference counts, prefix index, block tables. Integers only, no tensors."""

from mini_engine.cache.block_pool import NULL_BLOCK, Block, BlockPool, FreeBlockQueue, NoFreeBlocksError
from mini_engine.cache.block_tables import BlockTables, CacheRequest
from mini_engine.cache.contiguous import RESERVATIONS, BuddyAllocator, FirstFitAllocator, NoRunError, Waste
from mini_engine.cache.hashing import BlockHasher, ShortHasher, TokenChain, WeakHasher, pack_tokens
from mini_engine.cache.kv_manager import KVCacheManager
from mini_engine.cache.ops import CacheOp
from mini_engine.cache.prefix_index import BlockIndex, PrefixIndex
from mini_engine.cache.radix import RadixPrefixIndex
from mini_engine.cache.swapping import SwappingTables

__all__ = [
    "NULL_BLOCK",
    "RESERVATIONS",
    "Block",
    "BlockHasher",
    "BlockIndex",
    "BlockPool",
    "BlockTables",
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
    "SwappingTables",
    "TokenChain",
    "Waste",
    "WeakHasher",
    "pack_tokens",
]
