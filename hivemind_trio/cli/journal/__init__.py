"""Commands that read or keep the journal: `usage`, `journal`, and the story of a call for `explain`."""
