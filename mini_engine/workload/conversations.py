"""Small synthetic traces with a known structure: chats of several turns, and many questions about one long prompt."""

from __future__ import annotations

from random import Random

from mini_engine.arguments import ceil_div, count, real
from mini_engine.workload.generate import arrival_times
from mini_engine.workload.profile import arrival_rate
from mini_engine.workload.trace import Trace, TraceRequest


def multi_turn(
    num_sessions: int,
    turns: int,
    *,
    system_tokens: int = 512,
    user_tokens: int = 64,
    output_tokens: int = 128,
    rate: float = 1.0,
    think_time: float = 10.0,
    block_tokens: int = 16,
    seed: int = 0,
) -> Trace:
    """Chats: every turn's prompt is the whole conversation so far plus a new message.

    All sessions share a system prompt. Sessions start at `rate` per second (Poisson); a user answers after
    `think_time` seconds on average. User and output lengths vary by half around their mean. Hash ids name blocks of
    `block_tokens` tokens.
    """
    num_sessions, turns = (
        count("num_sessions", num_sessions, minimum=2, limit=10**5),
        count("turns", turns, limit=10**4),
    )
    sizes = {"system_tokens": system_tokens, "user_tokens": user_tokens, "output_tokens": output_tokens}
    for name, value in sizes.items():
        count(name, value, minimum=0 if name == "system_tokens" else 1, limit=10**6)
    count("block_tokens", block_tokens)
    think = float(real("think_time", think_time, minimum=0, limit=10**7))
    random = Random(count("seed", seed, minimum=0))
    starts = arrival_times(random, num_sessions, arrival_rate("rate", rate), 1.0)
    ids = _Blocks(block_tokens)
    requests = []
    for session, start in enumerate(starts):
        text: list[tuple[object, int]] = [("system", system_tokens)]  # (who said it, tokens)
        now = start
        for turn in range(turns):
            text.append(((session, turn, "user"), _around(random, user_tokens)))
            answer = _around(random, output_tokens)
            prompt = sum(tokens for _, tokens in text)
            requests.append(TraceRequest(now, prompt, answer, ids.of(text)))
            text.append(((session, turn, "assistant"), answer))
            now += think * (0.5 + random.random())
    requests.sort(key=lambda request: request.arrival)
    return Trace(f"synthetic_multi_turn_{num_sessions}x{turns}", tuple(requests), block_tokens, synthetic=True)


def shared_prefix(
    num_requests: int,
    prefix_tokens: int,
    *,
    question_tokens: int = 64,
    output_tokens: int = 64,
    rate: float = 4.0,
    block_tokens: int = 16,
    seed: int = 0,
) -> Trace:
    """Questions about one long document: every prompt is the same `prefix_tokens` tokens and a question of its own."""
    num_requests = count("num_requests", num_requests, minimum=2, limit=10**6)
    count("prefix_tokens", prefix_tokens, minimum=0, limit=10**7)
    count("question_tokens", question_tokens, limit=10**6)
    count("output_tokens", output_tokens, limit=10**6)
    count("block_tokens", block_tokens)
    random = Random(count("seed", seed, minimum=0))
    arrivals = arrival_times(random, num_requests, arrival_rate("rate", rate), 1.0)
    ids = _Blocks(block_tokens)
    requests = []
    for i, arrival in enumerate(arrivals):
        text: list[tuple[object, int]] = [
            ("document", prefix_tokens),
            ((i, "question"), _around(random, question_tokens)),
        ]
        prompt = sum(tokens for _, tokens in text)
        requests.append(TraceRequest(arrival, prompt, _around(random, output_tokens), ids.of(text)))
    return Trace(
        f"synthetic_shared_prefix_{num_requests}x{prefix_tokens}", tuple(requests), block_tokens, synthetic=True
    )


def _around(random: Random, mean: int) -> int:
    """An integer between half and one and a half of `mean`."""
    return max(1, round(mean * (0.5 + random.random())))


class _Blocks:
    """Numbers the blocks of texts: equal ids for blocks that hold the same pieces of text after the same blocks."""

    def __init__(self, block_tokens: int):
        self.block_tokens = block_tokens
        self.known: dict[object, int] = {}

    def of(self, text: list[tuple[object, int]]) -> tuple[int, ...]:
        total = sum(tokens for _, tokens in text)
        ids: list[int] = []
        for block in range(ceil_div(total, self.block_tokens)):
            first, last = block * self.block_tokens, min((block + 1) * self.block_tokens, total)
            content = (ids[-1] if ids else None, *self._pieces(text, first, last))
            ids.append(self.known.setdefault(content, len(self.known)))
        return tuple(ids)

    @staticmethod
    def _pieces(text: list[tuple[object, int]], first: int, last: int) -> list[tuple[object, int, int]]:
        """The parts of the speakers' texts that lie in tokens first .. last."""
        pieces, start = [], 0
        for who, tokens in text:
            begin, end = max(first, start), min(last, start + tokens)
            if begin < end:
                pieces.append((who, begin - start, end - start))
            start += tokens
        return pieces
