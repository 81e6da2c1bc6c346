"""The kinds of failures that are counted: in every manifest, in the ledger, in the tables of `finevolve usage`.

The first group is about transport: the attempt was made again, or the run stopped. The second is about answers: the
model did answer, and badly. Counts belong to the answer that was got in the end, so that a replay from the cache
counts the same.
"""

from __future__ import annotations

RATE_LIMITED = "rate_limited"
"""Status 429."""
SERVER_ERROR = "server_error"
"""Status 408, 409, 425 or 5xx, or an error object inside a stream."""
REFUSED = "refused"
"""The provider refuses the request for good: key, balance, model, address, form or length. The run stops."""
CONNECTION = "connection"
"""No connection, or one that broke before an answer began."""
TIMEOUT = "timeout"
"""Too long a silence, or past the deadline."""
DROPPED = "dropped"
"""The answer broke off midway."""
MALFORMED = "malformed"
"""A body that is no chat completion: HTML, half a JSON text, no choices."""
UNSTRUCTURED = "unstructured"
"""The provider does not know the demanded answer format; a weaker one was used."""

EMPTY = "empty"
"""An answer without text."""
CAP_RAISED = "cap_raised"
"""max_tokens was eaten; asked again with a higher cap."""
TRUNCATED = "truncated"
"""Still cut off with the higher cap."""
CONTENT_FILTER = "content_filter"
"""The provider refuses to answer this content."""
UNREADABLE = "unreadable"
"""No JSON object of the demanded kind in the answer."""
INVALID_FIELD = "invalid_field"
"""A field that is missing or of a wrong value, e.g. a score outside [-1, 1]."""
REASKED = "reasked"
"""Asked a second time because the first answer could not be used in full."""

LOST = "lost"
"""Only in the ledger: the process died before it could say how the attempt ended."""

TRANSPORT = (RATE_LIMITED, SERVER_ERROR, REFUSED, CONNECTION, TIMEOUT, DROPPED, MALFORMED, UNSTRUCTURED)
ANSWERS = (EMPTY, CAP_RAISED, TRUNCATED, CONTENT_FILTER, UNREADABLE, INVALID_FIELD, REASKED)
