"""Jobs that wait become batches: first come, first served."""

import asyncio
from dataclasses import dataclass
from typing import Any

from elmokit.server.jobs import Job


@dataclass(frozen=True, eq=False)
class Ticket:
    """A job, and where its answer goes."""

    job: Job[Any]
    answer: "asyncio.Future[Any]"

    def give(self, answer: object) -> None:
        """Hand over an answer, or raise what went wrong, if somebody still waits."""
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Line(dict[Ticket, None]):
    """Those that wait, in order of arrival, and how many `idle` ones there are to read for them."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = asyncio.Event()
        self.idle = 0

    def join(self, ticket: Ticket) -> None:
        """Wait at the end."""
        self[ticket] = None
        self.arrived.set()

    def leave(self, ticket: Ticket) -> None:
        """Wait no more."""
        self.pop(ticket, None)
        if not self:
            self.arrived.clear()

    def take(self, most_tokens: int) -> list[Ticket]:
        """Those that came first: an idle one's share, at most what a batch holds, at least one."""
        all_tokens = sum(ticket.job.tokens for ticket in self)
        share = min(most_tokens, all_tokens / self.idle)
        batch: list[Ticket] = []
        tokens = 0
        for ticket in self:
            tokens += ticket.job.tokens
            if batch and tokens > share:
                break
            batch.append(ticket)
        for ticket in batch:
            self.leave(ticket)
        return batch


def hand_out(answers: list[tuple[Ticket, object]]) -> None:
    """Give each answer to whoever waits for it, and keep none."""
    while answers:
        ticket, answer = answers.pop(0)
        ticket.give(answer)
