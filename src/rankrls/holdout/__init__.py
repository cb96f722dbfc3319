"""Hold-out: exact predictions of rows by the model that never saw them, without refitting."""
