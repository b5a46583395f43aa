"""What the process counts in code that the agent also runs. `metrics` shows it; the agent serves no metrics, and the
library for them would take 2 MB of its memory."""

from collections import Counter

API_REQUESTS: Counter[tuple[str, str]] = Counter()
"""Requests to the API server, by method and status code."""
