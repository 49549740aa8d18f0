"""Better plans: bounds, chains of moves, CP-SAT in neighbourhoods, steps in a safe order."""
