"""Plain immutable data: the nouns that every other part of optrove speaks."""
