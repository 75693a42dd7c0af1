"""IMAGINES: a synthetic web, a virtual clock and bad luck, all from one seed."""
