"""Samples of a running crawl: rates, hosts and dead letters, for the terminal and other views."""
