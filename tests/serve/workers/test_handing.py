"""Connections go to the worker that has the fewest."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import attrs
import pytest
import trio

from hivemind_trio.serve.workers.handing import ConnectionBoard, HandedConnections, Handover, Taker


@attrs.define(eq=False)
class Worker:
    """One that accepts what it is handed."""

    taker: Taker
    handed: HandedConnections
    board: ConnectionBoard
    open: list[socket.socket] = attrs.field(factory=list)

    def accept(self) -> None:
        while True:
            try:
                accepted, _ = self.handed.accept()
            except BlockingIOError:
                break
            self.open.append(accepted)
        self.count()

    def count(self) -> None:
        self.board.write(self.taker.place, self.handed.taken, len(self.open))


@pytest.fixture
async def workers() -> AsyncIterator[list[Worker]]:
    board, made = ConnectionBoard.create(2), []
    for place in range(2):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        handed = HandedConnections(theirs, ("127.0.0.1", 80))
        made.append(Worker(Taker(place, board, ours), handed, ConnectionBoard.opened(board.file)))
    yield made
    for one in made:
        one.taker.close()
        one.handed.close()
        for connection in one.open:
            connection.close()


def connection() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    client.close()
    return accepted


async def hand(handover: Handover, count: int) -> None:
    for _ in range(count):
        with connection() as accepted:
            await handover.hand(accepted)


async def test_each_connection_goes_to_the_one_with_the_fewest_also_before_they_are_accepted(
    workers: list[Worker],
) -> None:
    handover, (one, other) = Handover(), workers
    for worker in workers:
        handover.add(worker.taker)
    await hand(handover, 6)
    assert [worker.taker.connections() for worker in workers] == [3, 3]
    for worker in workers:
        worker.accept()
    assert [worker.taker.connections() for worker in workers] == [3, 3]
    assert one.open[0].family == socket.AF_INET

    while other.open:
        other.open.pop().close()
    other.count()
    await hand(handover, 3)
    assert [worker.taker.connections() for worker in workers] == [3, 3]


async def test_one_that_rests_or_is_full_or_gone_is_passed_over(workers: list[Worker]) -> None:
    handover, (one, other) = Handover(), workers
    for worker in workers:
        handover.add(worker.taker)
    one.taker.rests = True
    await hand(handover, 2)
    one.taker.rests = False
    assert [worker.taker.connections() for worker in workers] == [0, 2]

    one.handed.close()
    await hand(handover, 2)
    assert other.taker.connections() == 4

    handover.remove(other.taker)
    with trio.move_on_after(0.3) as waits:
        await hand(handover, 1)
    assert waits.cancelled_caught


async def test_a_worker_whose_supervisor_is_gone_accepts_no_more(workers: list[Worker]) -> None:
    one = workers[0]
    one.taker.close()
    assert one.handed.is_empty()
    with pytest.raises(BlockingIOError):
        one.handed.accept()
    assert one.handed.fileno() == -1
