"""What a language model server does with its requests: latency, goodput and energy."""
