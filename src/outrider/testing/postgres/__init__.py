"""LENDS what tests of the PostgreSQL store want: large crawls, and the rules its tables keep."""
