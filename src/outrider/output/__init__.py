"""Output of a crawl: a killed process leaves no torn record and no duplicate."""
