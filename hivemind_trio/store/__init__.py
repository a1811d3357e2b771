"""Files that outlive the process: budgets and hints (`Ledger`), and the journal of every call.

    store = SqliteStore.open("state.db", ...)       # budgets: a `Ledger` writes them, the scheduler draws on it

    async with open_journal("team.journal", on_trouble=...) as journal:
        journal.began(program.hash, engine.now_ns())    # and `journal.record` is the engine's `journal`
    read_journal("team.journal")                        # while it is being written, too

What is told of a call is enough to make it again (`hivemind_trio.sim`) and to say why it was treated as it was. No body
is in it, and no credential (`redaction`). The tables are in `tables`; `SELECT * FROM history` has a line for each call.
"""

from .hints import hints as hints
from .hints import restored_beliefs as restored_beliefs
from .journal_file import JournalError as JournalError
from .ledger import Ledger as Ledger
from .ledger import writing as writing
from .memory_store import MemoryStore as MemoryStore
from .reader import read_journal as read_journal
from .rows import Answered as Answered
from .sqlite_store import SqliteStore as SqliteStore
from .sqlite_store import StateError as StateError
from .sqlite_store import unwritable as unwritable
from .state import Restored as Restored
from .state import StateStore as StateStore
from .writer import Journal as Journal
from .writer import open_journal as open_journal
