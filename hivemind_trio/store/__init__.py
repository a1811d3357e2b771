"""The journal: every call, in order, in an SQLite file that outlives the process.

    async with open_journal("team.journal", on_trouble=...) as journal:
        journal.began(program.hash, engine.now_ns())    # and `journal.record` is the engine's `journal`
    read_journal("team.journal")                        # while it is being written, too

What is told of a call is enough to make it again (`hivemind_trio.sim`) and to say why it was treated as it was. No body
is in it, and no credential (`_redact`). The tables are in `_schema`; `SELECT * FROM history` has a line for each call.
"""

from .journal_file import JournalError as JournalError
from .reader import read_journal as read_journal
from .rows import Answered as Answered
from .writer import Journal as Journal
from .writer import open_journal as open_journal
