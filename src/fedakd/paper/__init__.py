"""The paper's tables and figures: what was published, and what comes of the same comparison here."""
