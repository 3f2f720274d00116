"""Ways into it that combine the storeys below: sweeps, an agent that trains itself, demos, a first look at files."""
