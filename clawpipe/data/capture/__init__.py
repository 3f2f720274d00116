"""Store captured turns in segments of records, and assemble sessions and turns from these records."""
