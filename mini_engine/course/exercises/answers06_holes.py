"""Answers to lesson 06's lists of holes: first fit, joining, buddies. Right ones, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache.contiguous import Hole, first_fit, give_back

Holes = list[Hole]
Taken = tuple[int, Holes] | None


def fits_by_comprehension(holes: Holes, size: int) -> Taken:
    found = [hole for hole in holes if hole[1] >= size]
    if not found:
        return None
    start, room = found[0]
    rest = [hole for hole in holes if hole != (start, room)]
    if room > size:
        rest.append((start + size, room - size))
    return start, sorted(rest)


def _take(holes: Holes, i: int, size: int) -> Taken:
    start, room = holes[i]
    left = list(holes)
    left[i : i + 1] = [(start + size, room - size)] if room > size else []
    return start, left


def best_fit(holes: Holes, size: int) -> Taken:
    fitting = [i for i, (_, room) in enumerate(holes) if room >= size]
    return _take(holes, min(fitting, key=lambda i: holes[i][1]), size) if fitting else None


def last_fit(holes: Holes, size: int) -> Taken:
    fitting = [i for i, (_, room) in enumerate(holes) if room >= size]
    return _take(holes, fitting[-1], size) if fitting else None


def first_only(holes: Holes, size: int) -> Taken:
    return _take(holes, 0, size) if holes and holes[0][1] >= size else None


def loose_fit_only(holes: Holes, size: int) -> Taken:
    return next((_take(holes, i, size) for i, (_, room) in enumerate(holes) if room > size), None)


def from_the_end(holes: Holes, size: int) -> Taken:
    for i, (start, room) in enumerate(holes):
        if room >= size:
            rest = [(start, room - size)] if room > size else []
            return start + room - size, [*holes[:i], *rest, *holes[i + 1 :]]
    return None


def keeps_the_hole(holes: Holes, size: int) -> Taken:
    found = first_fit(holes, size)
    return found and (found[0], list(holes))


def drops_the_rest(holes: Holes, size: int) -> Taken:
    found = first_fit(holes, size)
    return found and (found[0], [hole for hole in holes if hole[0] != found[0]])


def rest_at_the_end(holes: Holes, size: int) -> Taken:
    for i, (start, room) in enumerate(holes):
        if room >= size:
            rest = [(start + size, room - size)] if room > size else []
            return start, [*holes[:i], *holes[i + 1 :], *rest]
    return None


def empty_hole(holes: Holes, size: int) -> Taken:
    for i, (start, room) in enumerate(holes):
        if room >= size:
            return start, [*holes[:i], (start + size, room - size), *holes[i + 1 :]]
    return None


def takes_the_sum(holes: Holes, size: int) -> Taken:
    if sum(room for _, room in holes) < size:
        return None
    return first_fit(holes, size) or (holes[0][0], [])


def minus_one(holes: Holes, size: int) -> Taken:
    return first_fit(holes, size) or (-1, list(holes))


def first_six(holes: Holes, size: int) -> Taken:
    found = first_fit(holes[:6], size)
    return found and (found[0], found[1] + holes[6:])


def up_to_five(holes: Holes, size: int) -> Taken:
    return first_fit(holes, size) if size <= 5 else None


def changes_the_list(holes: Holes, size: int) -> Taken:
    found = first_fit(holes, size)
    if found:
        holes[:] = found[1]
    return found and (found[0], holes)


def give_back_slots(holes: Holes, start: int, size: int) -> Holes:
    """give_back by looking at single slots."""
    free = {slot for first, room in [*holes, (start, size)] for slot in range(first, first + room)}
    starts = sorted(slot for slot in free if slot - 1 not in free)
    ends = sorted(slot + 1 for slot in free if slot + 1 not in free)
    return [(first, end - first) for first, end in zip(starts, ends)]


def give_back_neighbours(holes: Holes, start: int, size: int) -> Holes:
    end, rest = start + size, []
    for first, room in holes:
        if first + room == start:
            start = first
        elif first == end:
            end = first + room
        else:
            rest.append((first, room))
    return sorted([*rest, (start, end - start)])


def give_back_lists(holes: Holes, start: int, size: int) -> list[list[int]]:
    """give_back with holes that are lists, so that the last one can grow in place."""
    merged: list[list[int]] = []
    for first, room in sorted([*holes, (start, size)]):
        if merged and sum(merged[-1]) == first:
            merged[-1][1] += room
        else:
            merged.append([first, room])
    return merged


def no_join(holes: Holes, start: int, size: int) -> Holes:
    return sorted([*holes, (start, size)])


def appended(holes: Holes, start: int, size: int) -> Holes:
    joined = give_back(holes, start, size)
    kept = [hole for hole in joined if hole in holes]
    return kept + [hole for hole in joined if hole not in holes]


def joins_left(holes: Holes, start: int, size: int) -> Holes:
    before = [hole for hole in holes if hole[0] < start]
    return give_back(before, start, size) + [hole for hole in holes if hole[0] > start]


def joins_right(holes: Holes, start: int, size: int) -> Holes:
    after = [hole for hole in holes if hole[0] > start]
    return [hole for hole in holes if hole[0] < start] + give_back(after, start, size)


def joins_one(holes: Holes, start: int, size: int) -> Holes:
    joined = joins_left(holes, start, size)
    return joined if len(joined) <= len(holes) else joins_right(holes, start, size)


def joins_over_gaps(holes: Holes, start: int, size: int) -> Holes:
    merged: Holes = []
    for first, room in sorted([*holes, (start, size)]):
        if merged and sum(merged[-1]) + 1 >= first:
            merged[-1] = (merged[-1][0], first + room - merged[-1][0])
        else:
            merged.append((first, room))
    return merged


def loses_the_run(holes: Holes, start: int, size: int) -> Holes:
    return [hole for hole in give_back(holes, start, size) if hole != (start, size)]


def joins_first_three(holes: Holes, start: int, size: int) -> Holes:
    return sorted(give_back(holes[:3], start, size) + holes[3:])


def buddy_join(holes: Holes, start: int, size: int) -> Holes:
    """The holes with the run back among them, joined with its buddy, and the pair with its own, as long as they are free."""
    left = list(holes)
    while (start ^ size, size) in left:
        left.remove((start ^ size, size))
        start, size = min(start, start ^ size), 2 * size
    return sorted([*left, (start, size)])


def buddy_by_division(holes: Holes, start: int, size: int) -> Holes:
    """The same: an even run's buddy is above it, an odd one's below."""
    buddy = start + size if start // size % 2 == 0 else start - size
    if (buddy, size) not in holes:
        return sorted([*holes, (start, size)])
    return buddy_by_division([hole for hole in holes if hole != (buddy, size)], min(start, buddy), 2 * size)


def buddy_once(holes: Holes, start: int, size: int) -> Holes:
    left = list(holes)
    if (start ^ size, size) in left:
        left.remove((start ^ size, size))
        start, size = min(start, start ^ size), 2 * size
    return sorted([*left, (start, size)])


def four_joins(holes: Holes, start: int, size: int) -> Holes:
    left = list(holes)
    for _ in range(4):
        if (start ^ size, size) in left:
            left.remove((start ^ size, size))
            start, size = min(start, start ^ size), 2 * size
    return sorted([*left, (start, size)])


def down_once(holes: Holes, start: int, size: int) -> Holes:
    left, was_below = list(holes), False
    while (start ^ size, size) in left and not (was_below and start ^ size < start):
        left.remove((start ^ size, size))
        was_below |= start ^ size < start
        start, size = min(start, start ^ size), 2 * size
    return sorted([*left, (start, size)])


def up_to_sixteen(holes: Holes, start: int, size: int) -> Holes:
    left = list(holes)
    while size < 16 and (start ^ size, size) in left:
        left.remove((start ^ size, size))
        start, size = min(start, start ^ size), 2 * size
    return sorted([*left, (start, size)])


def buddy_above(holes: Holes, start: int, size: int) -> Holes:
    left = list(holes)
    while (start + size, size) in left and start // size % 2 == 0:
        left.remove((start + size, size))
        size *= 2
    return sorted([*left, (start, size)])


def any_equal_neighbour(holes: Holes, start: int, size: int) -> Holes:
    left = list(holes)
    while True:
        near = [hole for hole in left if hole in ((start - size, size), (start + size, size))]
        if not near:
            return sorted([*left, (start, size)])
        left.remove(near[0])
        start, size = min(start, near[0][0]), 2 * size


def keeps_its_start(holes: Holes, start: int, size: int) -> Holes:
    left = list(holes)
    while (start ^ size, size) in left:
        left.remove((start ^ size, size))
        size *= 2
    return sorted([*left, (start, size)])


def buddy_of_any_size(holes: Holes, start: int, size: int) -> Holes:
    left = dict(holes)
    while start ^ size in left:
        left.pop(start ^ size)
        start, size = min(start, start ^ size), 2 * size
    return sorted([*left.items(), (start, size)])


def buddy_appended(holes: Holes, start: int, size: int) -> Holes:
    joined = buddy_join(holes, start, size)
    kept = [hole for hole in joined if hole in holes]
    return kept + [hole for hole in joined if hole not in holes]
