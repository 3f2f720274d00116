"""Which data taught which model, in both directions; what is to be forgotten leaves all of it, what nobody names is collected."""
