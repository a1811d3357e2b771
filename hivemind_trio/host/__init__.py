"""This machine as a policy sees it: its files, its environment, its secrets; and the signals of a process."""

from .disk_files import DiskFiles as DiskFiles
from .disk_files import folders as folders
from .git_files import GitError as GitError
from .git_files import GitFiles as GitFiles
from .memory import memory_bytes as memory_bytes
from .secrets import Secrets as Secrets
from .secrets import probe as probe
from .secrets import probe_content as probe_content
