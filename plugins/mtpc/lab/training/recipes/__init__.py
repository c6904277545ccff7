"""One recipe for each draft method that is trained here."""
