"""The one exception that means "the user can fix this".

Everything that a user may get wrong (a typo in params.yaml, a missing file, wrong bytes in a model) raises
`UserError` with a single line that says what was wrong and what to do. The command line prints that line after
`error:` and exits with code 2, and does so with what the system refuses. This module knows nothing else.
"""


class UserError(Exception):
    """A mistake of the user's; the message is one line: what was wrong, and what to do about it."""


def in_a_line(error: OSError) -> str:
    """What the system refused: a full disk, a folder that may not be written."""
    return f"{error.filename or 'system'}: {error.strerror or error}"
