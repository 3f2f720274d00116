"""Find and replace secrets and personal data before anything is stored."""
