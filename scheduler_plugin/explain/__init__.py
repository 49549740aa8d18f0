"""Why a pod waits, and the smallest set of changes that would let it in."""
