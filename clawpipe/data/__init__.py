"""What was recorded, brought in, cleaned, forgotten, and made into rows to train on."""
