"""What happened in a frame, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized

from mini_engine.course.film.frames import Deed, Frame

MAX_SENTENCES = 6


def headline(frame: Frame) -> str:
    """The label and what happened, a sentence for each deed; the most telling ones when there are many."""
    return f"{frame.label}: " + " ".join(sentences(frame))


def sentences(frame: Frame) -> list[str]:
    """What happened, in the order in which it happened; what many did alike is told in one sentence."""
    told = _faults(frame)[:2]
    for kind in dict.fromkeys(deed.kind for deed in frame.deeds):
        deeds = frame.deeds_of(kind)
        if kind == "write":
            told += _writes(frame)
        elif kind in MANY and len(deeds) >= MANY[kind][0]:
            told.append(MANY[kind][1](deeds))
        else:
            told += [_sentence(deed) for deed in deeds]
            told += [*_left_alone(frame), *_left_shared(frame)] if kind == "copy" else []
            told += _will_copy(frame) if kind == "fork" else []
    if len(told) > MAX_SENTENCES:
        told = [*told[: MAX_SENTENCES - 1], f"And {len(told) - MAX_SENTENCES + 1} things more."]
    return told or ["nothing happens."]


def _faults(frame: Frame) -> list[str]:
    """What a broken pool or manager has left behind: counts that differ from the tables, free blocks that are held."""
    free = set(frame.free_queue)
    told = []
    for block in frame.blocks:
        if block.is_miscounted:
            tables = f"{len(block.holders)} {_verb(block.holders, 'table holds', 'tables hold')} it"
            told.append(f"WRONG: block {block.block_id} has reference count {block.refs}, but {tables}.")
        if block.holders and block.block_id in free:
            told.append(
                f"WRONG: block {block.block_id} is in the free queue, but {_listed(block.holders)} {_verb(block.holders, 'holds', 'hold')} it."
            )
    return told


def _left_alone(frame: Frame) -> list[str]:
    """Why the last of those who shared a block does not copy it."""
    sources = dict.fromkeys(deed.blocks[0] for deed in frame.deeds_of("copy"))
    return [
        f"{deed.name} is then alone with block {block} and writes into it."
        for block in sources
        for deed in frame.deeds_of("write")
        if block in deed.blocks
    ]


def _will_copy(frame: Frame) -> list[str]:
    """What a fork leaves for later: blocks shared now that are not full."""
    ends = dict.fromkeys(deed.blocks[-1] for deed in frame.deeds_of("fork") if deed.blocks)
    open_ends = {b.block_id for b in frame.blocks if b.refs > 1 and b.filled < frame.memory.block_size} & set(ends)
    return [
        f"Block {end} is not full: who writes there while others share it copies it first."
        for end in ends
        if end in open_ends
    ][:1]


def _left_shared(frame: Frame) -> list[str]:
    """Why the other blocks of those who copy one are not copied."""
    names = {deed.name for deed in frame.deeds_of("copy")}
    kept = tuple(
        block.block_id
        for block in frame.blocks
        if len(block.holders) > 1
        and names & set(block.holders)
        and block.filled == frame.memory.block_size
        and not {"write", "copy"} & set(block.marks)
    )
    if not kept:
        return []
    many = len(kept) > 1
    return [
        f"{_capital(_blocks(kept))} {'stay' if many else 'stays'} shared: {'they are' if many else 'it is'} full, so nobody writes there."
    ]


def _many_arrive(deeds: list[Deed]) -> str:
    prompts = _listed([f"{deed.number}" for deed in deeds])
    return f"{_names(deeds)} arrive with prompts of {prompts} tokens."


def _many_evict(deeds: list[Deed]) -> str:
    blocks = _blocks(tuple(block for deed in deeds for block in deed.blocks))
    return f"{_capital(blocks)} are evicted: no blank block is left, so {_names(deeds)} take them, and what was cached there is lost."


def _many_finish(deeds: list[Deed]) -> str:
    return f"{_names(deeds)} end and give up their {'blocks' if deeds[0].blocks else 'runs'}."


def _many_abort(deeds: list[Deed]) -> str:
    return f"{_listed([name for deed in deeds for name in deed.others])} are aborted and give up their blocks."


def _many_copy(deeds: list[Deed]) -> str:
    sources = tuple(dict.fromkeys(deed.blocks[0] for deed in deeds))
    return f"{_names(deeds)} each copy a block before they write, because others still need it as it is: {_blocks(sources)} to {_blocks(tuple(d.to[0] for d in deeds))}."


def _many_hit(deeds: list[Deed]) -> str:
    return f"{_names(deeds)} find {_listed([f'{len(deed.blocks)}' for deed in deeds])} blocks in the cache: {tokens(sum(d.number for d in deeds))} need no computing."


def _many_fork(deeds: list[Deed]) -> str:
    return f"{_listed([name for deed in deeds for name in deed.others])} branch off and share all blocks they start with: nothing is copied."


# From how many on they are told together, and how.
MANY: dict[str, tuple[int, Callable[[list[Deed]], str]]] = {
    "arrive": (2, _many_arrive),
    "evict": (2, _many_evict),
    "finish": (2, _many_finish),
    "abort": (2, _many_abort),
    "hit": (3, _many_hit),
    "fork": (3, _many_fork),
    "copy": (4, _many_copy),
}


def _sentence(deed: Deed) -> str:
    name = deed.name
    blocks = _blocks(deed.blocks)
    match deed.kind:
        case "arrive":
            return f"{name} arrives with a prompt of {tokens(deed.number)}."
        case "preempt":
            return f"{name} is preempted: it gives up {blocks} and will be computed again."
        case "swap out":
            return f"{name} is swapped out: {blocks} to host {_blocks(deed.to)}."
        case "swap in":
            return f"{name} is swapped in: host {blocks} to {_blocks(deed.to)}."
        case "evict":
            verb, it = ("are", "them") if len(deed.blocks) > 1 else ("is", "it")
            return f"{_capital(blocks)} {verb} evicted: no blank block is left, so {name} takes {it}, and what was cached there is lost."
        case "copy":
            src, dst = deed.blocks[0], deed.to[0]
            if deed.others:
                verb = "needs" if len(deed.others) == 1 else "need"
                why = f"{_listed(deed.others)} still {verb} block {src} as it is"
            elif deed.number:
                why = f"block {src} is published and must not change"
            else:
                why = f"block {src} may not be written to"
            return f"{name} copies block {src} to block {dst} before it writes, because {why}."
        case "hit":
            return f"{name} finds {blocks} in the cache: {tokens(deed.number)} need no computing."
        case "fork":
            return f"{_listed(deed.others)} {_verb(deed.others, 'branches', 'branch')} off from {name} and {_verb(deed.others, 'shares', 'share')} {blocks}: nothing is copied."
        case "publish":
            verb, it = ("are", "them") if len(deed.blocks) > 1 else ("is", "it")
            return f"{_capital(blocks)} {verb} full and published: others can find {it} now."
        case "finish":
            return f"{name} ends and gives up {blocks}." if deed.blocks else f"{name} ends and gives up its memory."
        case "abort":
            many = len(deed.others) > 1
            return f"{_listed(deed.others)} {'are' if many else 'is'} aborted and {'give up their' if many else 'gives up its'} blocks."
        case "reset":
            return f"The prefix cache is reset: {_verb(deed.blocks, '1 block becomes', f'{len(deed.blocks)} blocks become')} blank."
        case "no reset":
            return "The prefix cache is not reset: some block is in use."
        case "rollback":
            return f"The step failed ({name}) and was rolled back."
        case "reserve":
            return f"{name} reserves {deed.number} slots in a row, from slot {deed.start} on."
        case "refuse":
            free, largest = deed.blocks
            room = f"{free} are free, at most {largest} in a row" if free else "none is free"
            return f"{name} has to wait: it needs {deed.number} slots in a row; {room}."
    raise ValueError(f"unknown deed {deed.kind!r}")


def _writes(frame: Frame) -> list[str]:
    """One sentence for the prompts, one for the decodes."""
    told = []
    decodes = [
        deed for deed in frame.deeds_of("write") if deed.number == 1 and (deed.start or not frame.memory.is_paged)
    ]
    prompts = [deed for deed in frame.deeds_of("write") if deed not in decodes]
    for deeds in (prompts, decodes):
        if not deeds:
            continue
        names = _names(deeds)
        blocks = tuple(dict.fromkeys(block for deed in deeds for block in deed.blocks))
        into = f" into {_blocks(blocks)}" if blocks else ""
        if deeds is decodes and len(deeds) > 1:
            told.append(f"{names} write 1 token each{into}.")
        elif len(deeds) > 1:
            told.append(f"{names} write {_listed([f'{deed.number}' for deed in deeds])} tokens{into}.")
        else:
            told.append(f"{names} writes {tokens(deeds[0].number)}{into}.")
    return told


def tokens(number: int) -> str:
    """ "1 token", "2 tokens"."""
    return f"{number} token" if number == 1 else f"{number} tokens"


def _verb(names: Sized, one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _names(deeds: list[Deed]) -> str:
    return _listed([deed.name for deed in deeds])


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _listed(given: Iterable[str]) -> str:
    """ "A", "A and B", "A, B and C"."""
    names = list(given)
    if len(names) > 6:
        names = [*names[:5], f"{len(names) - 5} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _blocks(blocks: tuple[int, ...]) -> str:
    """ "block 3", "blocks 3 and 5", "blocks 3 to 9"."""
    if not blocks:
        return "no blocks"
    if len(blocks) == 1:
        return f"block {blocks[0]}"
    if len(blocks) > 2 and list(blocks) == list(range(blocks[0], blocks[-1] + 1)):
        return f"blocks {blocks[0]} to {blocks[-1]}"
    if len(blocks) > 5:
        return f"{len(blocks)} blocks ({', '.join(map(str, blocks[:3]))}, ... {blocks[-1]})"
    return f"blocks {', '.join(map(str, blocks[:-1]))} and {blocks[-1]}"
