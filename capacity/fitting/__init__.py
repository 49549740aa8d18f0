"""How the shipped profiles are made from the reference data; nothing here runs in a process."""
