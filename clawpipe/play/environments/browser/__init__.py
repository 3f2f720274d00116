"""A browser for episodes: one Chromium in a process of its own, a context for each episode, the page as text."""
