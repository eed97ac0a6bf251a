"""The only packages that import a framework, and only when it is wanted."""
