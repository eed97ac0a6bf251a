"""Boards: the table, mock boards, and opening devices."""
