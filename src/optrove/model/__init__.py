"""The nouns: plain immutable data that every other room uses."""
