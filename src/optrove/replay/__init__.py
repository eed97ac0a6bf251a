"""Execute recorded cases: choose a device, run jobs in workers, judge the results."""
