"""Answers as documents, drawn as text, HTML, Markdown and JSON."""
