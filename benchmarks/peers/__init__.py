"""The engines compared, one module each. Every module has a class `Peer` with the same face:

Peer(model, requests)    load the weights at the path `model`; `requests` says how large the cache must be
run(requests)            continue all of them greedily, past any end-of-sequence token; the new token ids of each
details()                anything else worth keeping, as a dict

A request is {"prompt": token ids, "out": how many tokens to write}. Each peer runs in a process of its own
(`peers.child`), on one thread. Importing a module whose package is not installed raises ModuleNotFoundError.
"""
