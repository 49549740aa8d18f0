"""What is promised or under way and not yet kept: places, gangs, moves, disruptions. Pure."""
