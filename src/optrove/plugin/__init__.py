"""The parts of the pytest plugin, imported only when a flag or a variable asks for one."""
