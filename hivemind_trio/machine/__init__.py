"""This machine as a policy sees it: its files, its environment, its secrets."""

from ._files import DiskFiles as DiskFiles
from ._files import folders as folders
from ._git import GitError as GitError
from ._git import GitFiles as GitFiles
from ._secrets import Secrets as Secrets
from ._secrets import probe as probe
