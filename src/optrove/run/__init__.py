"""Execute Jobs in worker processes and judge what came of them."""
