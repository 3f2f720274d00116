"""What a night tells people: on the terminal, in a report, in its lineage."""

LINEAGE, REPORT = "lineage.json", "report.html"  # in the night's run directory
