"""What settings, commands and variables of other systems are called here."""
