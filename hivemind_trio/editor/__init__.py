"""Queries of an editor about a policy's text: roles of words, completions, declarations. Pure."""

from hivemind_trio.policy import Edit as Edit
from hivemind_trio.policy import Occurrence as Occurrence
from hivemind_trio.policy import Symbol as Symbol
from hivemind_trio.policy import occurrence_at as occurrence_at
from hivemind_trio.policy import occurrences as occurrences

from .completion import Completion as Completion
from .completion import Proposal as Proposal
from .completion import Sort as Sort
from .completion import complete as complete
from .document_outline import Outlined as Outlined
from .document_outline import outline as outline
from .hover_text import hover as hover
from .inlay_hints import hints as hints
from .positions import Positions as Positions
from .positions import declaration_around as declaration_around
from .positions import line_before as line_before
from .quick_fixes import Mend as Mend
from .quick_fixes import mends as mends
from .renaming import RenameError as RenameError
from .renaming import rename as rename
from .token_roles import Role as Role
from .token_roles import roles as roles
from .workspace import Workspace as Workspace
