"""An index in PostgreSQL with pgvector, for those who outgrow one machine or one process."""
