"""One worker as the supervisor sees it: its process, its channel, and what it is handed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeVar, final

import attrs
import msgspec
import trio

from hivemind_trio.admin import Operation, OperationFailed, ProblemKind
from hivemind_trio.scheduler import AccountKey

from .channel import INTERNAL, Channel, Failed
from .handing import ConnectionBoard, Taker
from .ledger import WorkerLedger

MODULE: Final = "hivemind_trio.serve.workers"

END_S: Final = 5.0
"""Time for a process to end after it has closed its channel."""

T = TypeVar("T")


@final
@attrs.frozen(kw_only=True, eq=False)
class _Ends:
    """The supervisor's ends of what it shares with one process, and the process's own."""

    channel: tuple[socket.socket, socket.socket]
    connections: tuple[socket.socket, socket.socket]
    ledger: tuple[socket.socket, socket.socket]

    @classmethod
    def create(cls) -> Self:
        return cls(
            channel=socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM),
            connections=socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
            ledger=socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
        )

    def theirs(self) -> list[socket.socket]:
        return [self.channel[1], self.connections[1], self.ledger[1]]


@final
@attrs.define(eq=False, kw_only=True)
class WorkerProcess:
    """A worker, from its start to its end.

    Args:
        name: Among the workers.
        starts: Processes of this name so far, with this one.
    """

    name: str
    starts: int
    channel: Channel
    taker: Taker
    started_at_s: float = attrs.field(factory=trio.current_time)
    pid: int = attrs.field(init=False, default=0)
    is_ready: bool = attrs.field(init=False, default=False)
    leaves: bool = attrs.field(init=False, default=False)
    """True if it was told to end, by the supervisor or by a signal."""
    silent_since_s: float | None = attrs.field(init=False, default=None)
    """When a question was sent that it has not answered yet; None: it has answered all."""
    _ends: _Ends
    _board: ConnectionBoard
    _process: trio.Process | None = attrs.field(init=False, default=None)

    @classmethod
    def create(cls, name: str, place: int, starts: int, board: ConnectionBoard) -> Self:
        """Return a worker that has not begun."""
        ends = _Ends.create()
        board.write(place, 0, 0)
        taker = Taker(place, board, ends.connections[0])
        return cls(name=name, starts=starts, channel=Channel(ends.channel[0]), taker=taker, ends=ends, board=board)

    @property
    def ledger_socket(self) -> socket.socket:
        """The end at which the worker's ledger entries arrive."""
        return self._ends.ledger[0]

    async def run(
        self, ledger: WorkerLedger | None, wall_ns: Callable[[], int]
    ) -> tuple[str, Mapping[AccountKey, tuple[int, int]]]:
        """Run the process until it ends.

        Returns:
            Its end in words, and what was charged for the calls that it left open.
        """
        charged: Mapping[AccountKey, tuple[int, int]] = {}

        async def read_ledger() -> None:
            nonlocal charged
            if ledger is not None:
                charged = await ledger.run(wall_ns)
            else:
                self.ledger_socket.close()

        theirs = self._ends.theirs()
        numbers = [sock.fileno() for sock in theirs]
        numbers.insert(2, self._board.file)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.channel.run)
            try:
                process = await trio.lowlevel.open_process(
                    [sys.executable, "-m", MODULE, *map(str, numbers)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=numbers,
                    process_group=0,  # Ctrl-C is for the supervisor
                )
            except OSError as error:  # such as too little memory: the reason for which the last one may have ended
                for sock in (*theirs, self.ledger_socket):
                    sock.close()
                self.taker.close()
                nursery.cancel_scope.cancel()
                return f"it could not be started: {error.strerror or error}", {}
            self._process, self.pid = process, process.pid
            for sock in theirs:
                sock.close()
            nursery.start_soon(read_ledger)
            try:
                await self.channel.closed.wait()
                with trio.move_on_after(END_S):
                    await process.wait()
            finally:
                self.taker.close()
                self.channel.close()
                if process.returncode is None:
                    process.kill()
                with trio.CancelScope(shield=True):
                    status = await process.wait()
        return status_text(status), charged

    def stop(self) -> None:
        """Have it let its calls end."""
        self.leaves = True
        self.channel.tell("stop")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def ask(self, name: str, value: object, kind: type[T]) -> T:
        """Ask it something.

        Raises:
            Failed: It cannot do it.
            ChannelClosed: It has ended.
        """
        return await self.channel.ask(name, value, kind)

    async def operate(self, operation: Operation, arguments: object, by: str, *, is_noted: bool = True) -> Any:
        """Have it do an operation.

        Args:
            operation: The operation.
            arguments: Of its type.
            by: Who asks.
            is_noted: False: another worker does the same, and is noted for it.

        Raises:
            OperationFailed: It cannot.
            ChannelClosed: It has ended.
            RuntimeError: It has met a bug.
        """
        body = msgspec.Raw(msgspec.msgpack.encode(arguments))
        try:
            return await self.ask("operation", (operation.name, by, is_noted, body), operation.result)
        except Failed as failed:
            if failed.code == INTERNAL:
                raise RuntimeError(f"{self.name}: {failed.text}") from None
            raise OperationFailed(ProblemKind(failed.code), failed.text, failed.lines) from None


def status_text(status: int) -> str:
    """Return an exit status in words."""
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"
