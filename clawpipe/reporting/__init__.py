"""What a night tells people: on the terminal and in a report."""
