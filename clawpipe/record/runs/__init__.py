"""Runs of nights: each has an id and a record in the home; they are listed, followed and stopped here."""
