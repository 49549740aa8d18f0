"""What pods that share a board cost one another: by their shares of it, or by measured pairs."""
