"""Choose, vary and order what is to be executed."""
