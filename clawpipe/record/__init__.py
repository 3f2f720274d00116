"""What happened, and what is kept of it: nights, registered models, lineage, reviews, reports, and removal."""
