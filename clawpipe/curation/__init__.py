"""Which rows teach: steps of SQL that keep, pair and weigh them, and count what they leave out and why."""
