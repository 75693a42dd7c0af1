"""One question a module: each policy is a pure object that answers it and knows no store."""
