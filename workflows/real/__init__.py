"""A pretrained model with a real vocabulary, for the token study: SmolLM2-135M-Instruct on one-digit sums."""
