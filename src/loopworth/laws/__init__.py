"""Laws, robust fits, intervals and diagnostics, on arrays alone."""
