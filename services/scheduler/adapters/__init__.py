"""Processes of the scheduler that read the log for those who ask about earlier moments."""
