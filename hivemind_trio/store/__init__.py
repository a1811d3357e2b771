"""Files that outlive the process: budgets and hints (`Ledger`), and the journal of every call.

    store = SqliteStore.open("state.db", ...)       # budgets: a `Ledger` writes them, the scheduler draws on it

    async with open_journal("team.journal", on_trouble=...) as journal:
        journal.began(program.hash, engine.now_ns())    # and `journal.record` is the engine's `journal`
    read_journal("team.journal")                        # while it is being written, too

What is told of a call is enough to make it again (`hivemind_trio.sim`) and to say why it was treated as it was. No body
is in it, and no credential (`redaction`). The tables are in `tables`; `SELECT * FROM history` has a line for each call.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .file_lock import FileLock as FileLock
    from .file_lock import HeldElsewhere as HeldElsewhere
    from .journal.journal_file import JournalError as JournalError
    from .journal.journal_file import JournalFile as JournalFile
    from .journal.journal_file import vacuum_journal as vacuum_journal
    from .journal.plan_report import PlanRow as PlanRow
    from .journal.plan_report import latest_plans as latest_plans
    from .journal.reader import CallFilter as CallFilter
    from .journal.reader import questioned as questioned
    from .journal.reader import read_journal as read_journal
    from .journal.recorded_events import PolicyFiles as PolicyFiles
    from .journal.recorded_events import RecordedEvent as RecordedEvent
    from .journal.recorded_events import first_policy as first_policy
    from .journal.recorded_events import policy_files as policy_files
    from .journal.recorded_events import recorded_events as recorded_events
    from .journal.recorded_events import recorded_sessions as recorded_sessions
    from .journal.recorded_events import shown as shown
    from .journal.rows import Answered as Answered
    from .journal.story import AttemptStory as AttemptStory
    from .journal.story import CallStory as CallStory
    from .journal.story import latest_story as latest_story
    from .journal.story import slowest_stories as slowest_stories
    from .journal.story import story_named as story_named
    from .journal.story import turned_away as turned_away
    from .journal.turns import TurnStory as TurnStory
    from .journal.turns import live_turn as live_turn
    from .journal.usage_report import KEYS as KEYS
    from .journal.usage_report import UsageRow as UsageRow
    from .journal.usage_report import usage_by as usage_by
    from .journal.writer import Journal as Journal
    from .journal.writer import JournalBacklog as JournalBacklog
    from .journal.writer import join_journal as join_journal
    from .journal.writer import open_journal as open_journal
    from .place import make_private as make_private
    from .place import policy_key as policy_key
    from .place import state_home as state_home
    from .place import state_place as state_place
    from .state.hints import SESSIONS_HINT as SESSIONS_HINT
    from .state.hints import hints as hints
    from .state.hints import restored_beliefs as restored_beliefs
    from .state.interface import Claim as Claim
    from .state.interface import Entry as Entry
    from .state.interface import Learned as Learned
    from .state.interface import OpenedState as OpenedState
    from .state.interface import Restored as Restored
    from .state.interface import Spent as Spent
    from .state.interface import StateStore as StateStore
    from .state.interface import account_of as account_of
    from .state.interface import account_text as account_text
    from .state.ledger import Ledger as Ledger
    from .state.ledger import writing as writing
    from .state.memory_store import MemoryStore as MemoryStore
    from .state.sqlite_store import SqliteStore as SqliteStore
    from .state.sqlite_store import StateError as StateError
    from .state.sqlite_store import unwritable as unwritable
else:
    from hivemind_trio.lazy import exported_by

    __getattr__ = exported_by(__name__)
