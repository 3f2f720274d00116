"""What may not be stored: secrets and personal data are found and replaced."""
