"""What a replay and a generated program have in common: how inputs are drawn and results judged.

The modules here import nothing of optrove, only the standard library, numpy and torch. The
executors call them; generated programs hold copies of the functions that they reach, which
``optrove.testgen.portable_source`` makes. So a replay and a generated test of the same case give
the same verdict. Names are unique among all modules here, since copies stand in one file.
"""
